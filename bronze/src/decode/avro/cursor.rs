//! The plain values of Avro, read one after the other from the bytes of a block.

/// What is wrong with the bytes, as a sentence.
pub(super) type Damage = String;

/// Bytes that are read from their start.
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8], Damage> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or("a value goes beyond its block")?;
        self.bytes = rest;
        Ok(taken)
    }

    /// The next bytes, as many as there are in the array.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or("a value goes beyond its block")?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Damage> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(format!("{other} is not true or false")),
        }
    }

    /// A number of up to 64 bits: seven bits a byte, the lowest first, the sign in the lowest bit.
    pub(super) fn long(&mut self) -> Result<i64, Damage> {
        let mut value = 0_u64;
        for (index, byte) in self.bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[index + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err("a number has no end".to_owned())
    }

    pub(super) fn int(&mut self) -> Result<i32, Damage> {
        let value = self.long()?;
        i32::try_from(value).map_err(|_| format!("{value} is no number of 32 bits"))
    }

    /// A length or a position, which is not below 0.
    pub(super) fn length(&mut self) -> Result<usize, Damage> {
        let value = self.long()?;
        usize::try_from(value).map_err(|_| format!("{value} is no length"))
    }

    pub(super) fn float(&mut self) -> Result<f32, Damage> {
        self.array().map(f32::from_le_bytes)
    }

    pub(super) fn double(&mut self) -> Result<f64, Damage> {
        self.array().map(f64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'b [u8], Damage> {
        let length = self.length()?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<&'b str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not valid UTF-8".to_owned())
    }

    /// How many items or entries follow before the next such number; 0 at the end of an array or map.
    pub(super) fn run(&mut self) -> Result<u64, Damage> {
        let count = self.long()?;
        if count < 0 {
            // The size in bytes, for readers that skip.
            self.long()?;
        }
        Ok(count.unsigned_abs())
    }
}
