//! Protobuf's wire format (<https://protobuf.dev/programming-guides/encoding/>).

use crate::error::{Result, malformed};

/// A field as it stands in a message.
pub(crate) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// Takes one varint off the front.
pub(crate) fn varint(input: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = input.split_first().ok_or_else(|| malformed("unexpected EOF"))?;
        *input = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed("proto: integer overflow"))
}

fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    if len > input.len() {
        return Err(malformed("unexpected EOF"));
    }
    let (head, rest) = input.split_at(len);
    *input = rest;
    Ok(head)
}

/// Takes one field off the front: its number and content.
pub(crate) fn field<'a>(input: &mut &'a [u8]) -> Result<(u32, Wire<'a>)> {
    let tag = varint(input)?;
    let number =
        u32::try_from(tag >> 3).ok().filter(|n| *n > 0).ok_or_else(|| malformed("proto: illegal tag"))?;
    let content = match tag & 7 {
        0 => Wire::Varint(varint(input)?),
        1 => Wire::Fixed64(u64::from_le_bytes(take(input, 8)?.try_into().unwrap_or_default())),
        2 => {
            let len = usize::try_from(varint(input)?).map_err(|_| malformed("proto: negative length"))?;
            Wire::Bytes(take(input, len)?)
        }
        5 => Wire::Fixed32(u32::from_le_bytes(take(input, 4)?.try_into().unwrap_or_default())),
        other => return Err(malformed(format!("proto: illegal wireType {other}"))),
    };
    Ok((number, content))
}

/// Appends a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field with a varint.
pub(crate) fn put_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a field with bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field with a double.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}
