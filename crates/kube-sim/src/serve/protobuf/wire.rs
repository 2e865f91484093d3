//! Protobuf's wire format, limited to Kubernetes' types.

/// Error for bytes that are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// One field of a message.
#[derive(Debug)]
pub(super) struct WireField<'a> {
    pub(super) number: u32,
    pub(super) value: Number<'a>,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
}

impl<'a> Number<'a> {
    pub(super) fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Integer(_) => Err(Malformed),
        }
    }

    pub(super) fn text(&self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed)
    }

    pub(super) fn integer(&self) -> Result<i64, Malformed> {
        match self {
            // Negative numbers are sent as their two's complement.
            Self::Integer(value) => Ok(value.cast_signed()),
            Self::Bytes([]) => Ok(0),
            Self::Bytes(_) => Err(Malformed),
        }
    }
}

/// Returns the fields of a message in order.
pub(super) fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Result<WireField<'_>, Malformed>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let part = part(&mut bytes);
        if part.is_err() {
            bytes = &[];
        }
        Some(part)
    })
}

fn part<'a>(bytes: &mut &'a [u8]) -> Result<WireField<'a>, Malformed> {
    let key = varint(bytes)?;
    let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
    let value = match key & 7 {
        0 => Number::Integer(varint(bytes)?),
        1 => Number::Bytes(take(bytes, 8)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| Malformed)?;
            Number::Bytes(take(bytes, length)?)
        }
        5 => Number::Bytes(take(bytes, 4)?),
        _ => return Err(Malformed),
    };
    Ok(WireField { number, value })
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}
