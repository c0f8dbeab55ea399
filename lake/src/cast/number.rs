//! Numbers from text, to the last digit.

/// Reads a decimal number exactly: sign, digits, point, exponent. The result is the value times 10^`scale`.
///
/// # Errors
/// A sentence when the text is no number, needs more digits after the point than `scale`, or more digits than
/// `precision`.
pub(super) fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, String> {
    let not_a_number = || format!("`{text}` is not a number");
    let trimmed = text.trim_ascii();
    let (negative, unsigned) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        _ => (false, trimmed),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i32>().map_err(|_| not_a_number())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits_only = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits_only(whole) || !digits_only(fraction) {
        return Err(not_a_number());
    }
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    let shift = i64::from(scale) - fraction.len() as i64 + i64::from(exponent);
    let kept = if shift < 0 { digits.len() as i64 + shift } else { digits.len() as i64 };
    let (kept_digits, cut) = digits.split_at(usize::try_from(kept).unwrap_or(0).min(digits.len()));
    if cut.bytes().any(|digit| digit != b'0') || (kept < 0 && digits.bytes().any(|digit| digit != b'0')) {
        return Err(format!("`{text}` has more than {scale} digits after the point"));
    }
    if kept_digits.is_empty() {
        return Ok(0);
    }
    if kept_digits.len() as i64 + shift.max(0) > i64::from(precision) {
        return Err(format!("`{text}` has more digits than decimal({precision},{scale}) holds"));
    }
    let power = u32::try_from(shift.max(0)).unwrap_or(0);
    let value = kept_digits.parse::<i128>().map_err(|_| not_a_number())? * 10_i128.pow(power);
    Ok(if negative { -value } else { value })
}

/// Reads a whole number within the bounds of `T`.
///
/// # Errors
/// A sentence when the text is no whole number or out of range.
pub(super) fn integer<T: std::str::FromStr>(text: &str, type_name: &str) -> Result<T, String> {
    let trimmed = text.trim_ascii();
    trimmed.parse().map_err(|_| {
        let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_whole {
            format!("`{text}` is out of range for {type_name}")
        } else {
            format!("`{text}` is not a {type_name}")
        }
    })
}

/// Reads a finite floating point number.
///
/// # Errors
/// A sentence when the text is no number, is not finite or overflows.
pub(super) fn float(text: &str, type_name: &str) -> Result<f64, String> {
    let trimmed = text.trim_ascii();
    let starts_as_number = trimmed.bytes().any(|byte| byte.is_ascii_digit());
    match trimmed.parse::<f64>() {
        Ok(value) if value.is_finite() && starts_as_number => Ok(value),
        Ok(_) => Err(format!("`{text}` is not a finite {type_name}")),
        Err(_) => Err(format!("`{text}` is not a {type_name}")),
    }
}

/// Reads a truth value: true, false, t, f, yes, no, y, n, 1, 0, in any case.
///
/// # Errors
/// A sentence when the text is none of them.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text.trim_ascii().to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "0" => Ok(false),
        _ => Err(format!("`{text}` is not true or false")),
    }
}
