//! zstd with a dictionary, on contexts that each thread has one of.

use std::cell::RefCell;
use zstd_safe::{CCtx, CDict, DCtx, DDict};

/// The level of compression. Of those that were measured on objects of 1 KiB it is the one beyond which bytes hardly fall
/// and time rises (docs/benchmarks.md).
pub(crate) const LEVEL: i32 = 3;
/// What each zstd frame begins with; left out of values.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The longest plain value that is compressed, or believed when a frame announces it.
pub(crate) const MAX_PLAIN: usize = 4 << 20;
/// The longest buffer that a thread keeps between values.
const KEPT: usize = 256 << 10;

thread_local! {
    static CONTEXT: RefCell<Context> = RefCell::new(Context {
        compress: CCtx::create(),
        decompress: DCtx::create(),
        frame: Vec::new(),
    });
}

struct Context {
    compress: CCtx<'static>,
    decompress: DCtx<'static>,
    frame: Vec<u8>,
}

/// A dictionary, digested for both directions.
pub(crate) struct Dictionary {
    pub(crate) id: u32,
    compress: CDict<'static>,
    decompress: DDict<'static>,
}

impl Dictionary {
    /// Digests what training gave; `None` where it is no dictionary of zstd's.
    pub(crate) fn new(id: u32, bytes: &[u8], level: i32) -> Option<Self> {
        // Anything else would be taken as raw content.
        if !bytes.starts_with(&[0x37, 0xa4, 0x30, 0xec]) {
            return None;
        }
        // Frames name a dictionary by the identifier in it, four bytes of them; values do so in their header.
        let mut bytes = bytes.to_vec();
        bytes.get_mut(4..8)?.fill(0);
        let decompress = DDict::try_create(&bytes)?;
        Some(Self { id, compress: CDict::try_create(&bytes, level)?, decompress })
    }

    /// Appends the frame of a value if it comes out shorter than `limit`; otherwise leaves `out` as it is.
    pub(crate) fn compress(&self, value: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
        if value.len() > MAX_PLAIN {
            return false;
        }
        CONTEXT.with_borrow_mut(|context| {
            let frame = &mut context.frame;
            frame.clear();
            frame.reserve(zstd_safe::compress_bound(value.len()));
            let done = context.compress.compress_using_cdict(frame, value, &self.compress);
            let body = frame.strip_prefix(&MAGIC).filter(|body| done.is_ok() && body.len() < limit);
            out.extend_from_slice(body.unwrap_or_default());
            let shorter = body.is_some();
            frame.shrink_to(KEPT);
            shorter
        })
    }

    /// Reads a frame; `None` where it is damaged.
    pub(crate) fn decompress(&self, body: &[u8]) -> Option<Vec<u8>> {
        CONTEXT.with_borrow_mut(|context| {
            let frame = &mut context.frame;
            frame.clear();
            frame.extend_from_slice(&MAGIC);
            frame.extend_from_slice(body);
            let length = usize::try_from(zstd_safe::get_frame_content_size(frame).ok()??).ok()?;
            if length > MAX_PLAIN {
                return None;
            }
            let mut plain = Vec::with_capacity(length);
            let read = context.decompress.decompress_using_ddict(&mut plain, frame, &self.decompress).ok()?;
            frame.shrink_to(KEPT);
            (read == length && plain.len() == length).then_some(plain)
        })
    }
}
