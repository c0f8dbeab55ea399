//! Numbers from text, to the last digit.

use arrow::datatypes::DECIMAL128_MAX_PRECISION;

/// Why a text is no number of the wanted kind.
enum Misfit {
    NotANumber,
    Finer,
    Larger,
}

/// Reads a decimal number exactly: sign, digits, point, exponent. The result is the value times 10^`scale`.
///
/// # Errors
/// A sentence when the text is no number, needs more digits after the point than `scale`, or more digits than
/// `precision`.
pub(super) fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, String> {
    scaled(trimmed(text), precision, scale).map_err(|misfit| match misfit {
        Misfit::NotANumber => format!("`{text}` is not a number"),
        Misfit::Finer => format!("`{text}` has more than {scale} digits after the point"),
        Misfit::Larger => format!("`{text}` has more digits than decimal({precision},{scale}) holds"),
    })
}

fn scaled(text: &str, precision: u8, scale: i8) -> Result<i128, Misfit> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i32>().map_err(|_| Misfit::NotANumber)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits_only = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits_only(whole) || !digits_only(fraction) {
        return Err(Misfit::NotANumber);
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
        return Err(Misfit::Finer);
    }
    if kept_digits.is_empty() {
        return Ok(0);
    }
    if kept_digits.len() as i64 + shift.max(0) > i64::from(precision) {
        return Err(Misfit::Larger);
    }
    let power = u32::try_from(shift.max(0)).unwrap_or(0);
    let value = kept_digits.parse::<i128>().map_err(|_| Misfit::NotANumber)? * 10_i128.pow(power);
    Ok(if negative { -value } else { value })
}

/// Reads a whole number within the bounds of `T`, however it is written: `7`, `7.00`, `7e3`.
///
/// # Errors
/// A sentence when the text is no whole number or out of range.
pub(super) fn integer<T: std::str::FromStr + TryFrom<i128>>(text: &str, type_name: &str) -> Result<T, String> {
    let number = trimmed(text);
    // Nearly all are digits alone.
    number.parse().or_else(|_| whole(number, type_name).map_err(|reason| format!("`{text}` {reason}")))
}

fn whole<T: TryFrom<i128>>(number: &str, type_name: &str) -> Result<T, String> {
    let out_of_range = || format!("is out of range for {type_name}");
    match scaled(number, DECIMAL128_MAX_PRECISION, 0) {
        Ok(value) => T::try_from(value).map_err(|_| out_of_range()),
        Err(Misfit::Larger) => Err(out_of_range()),
        Err(Misfit::Finer) => Err(format!("is not a {type_name}: it has a fraction")),
        Err(Misfit::NotANumber) => Err(format!("is not a {type_name}")),
    }
}

/// Reads a floating point number, which may be `NaN`, `Infinity` or `-Infinity` (`inf` is another name), in any case.
///
/// # Errors
/// A sentence when the text is no number or overflows.
pub(super) fn float(text: &str, type_name: &str) -> Result<f64, String> {
    let number = trimmed(text);
    let is_written = || number.bytes().any(|byte| byte.is_ascii_digit());
    match number.parse::<f64>() {
        Ok(value) if value.is_infinite() && is_written() => Err(format!("`{text}` is out of range for {type_name}")),
        Ok(value) => Ok(value),
        Err(_) => Err(format!("`{text}` is not a {type_name}")),
    }
}

/// A text without the blanks around it; spaces that do not break are some.
pub(super) fn trimmed(text: &str) -> &str {
    let trimmed = text.trim_ascii();
    match trimmed.as_bytes() {
        [first, .., last] if first.is_ascii() && last.is_ascii() => trimmed,
        [] | [_] => trimmed,
        _ => trimmed.trim(),
    }
}

/// Reads a truth value: true, false, t, f, yes, no, y, n, 1, 0, in any case.
///
/// # Errors
/// A sentence when the text is none of them.
pub fn boolean(text: &str) -> Result<bool, String> {
    match trimmed(text).to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "0" => Ok(false),
        _ => Err(format!("`{text}` is not true or false")),
    }
}
