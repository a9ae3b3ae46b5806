//! Bytes in pieces, sent from where they lie: an item of a list costs neither a copy nor a count.

use bytes::Bytes;
use freehold_apiserver_cache::Piece;
use std::io::IoSlice;

/// Bytes in pieces.
#[derive(Debug)]
pub struct Pieces {
    /// None of them is empty.
    pieces: std::vec::IntoIter<Piece>,
    /// Bytes of the first that are done with.
    skip: usize,
    left: usize,
}

impl Pieces {
    /// Puts pieces together, in order; empty ones are left out.
    pub fn new<P: Into<Piece>>(pieces: Vec<P>) -> Self {
        // Where they are pieces already, nothing is moved.
        let mut pieces: Vec<Piece> = pieces.into_iter().map(Into::into).collect();
        pieces.retain(|piece| !piece.is_empty());
        let left = pieces.iter().map(|piece| piece.len()).sum();
        Self { pieces: pieces.into_iter(), skip: 0, left }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// What is left of each piece.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        let skips = std::iter::once(self.skip).chain(std::iter::repeat(0));
        self.pieces.as_slice().iter().zip(skips).map(|(piece, skip)| &piece[skip..])
    }

    /// All of it together.
    pub fn concat(&self) -> Bytes {
        let mut all = Vec::with_capacity(self.left);
        self.all().for_each(|piece| all.extend_from_slice(piece));
        all.into()
    }

    /// The bytes that come first, none only where there are no more.
    pub fn first(&self) -> &[u8] {
        self.all().next().unwrap_or_default()
    }

    /// Fills slices with the pieces that come first; gives how many.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        slices.iter_mut().zip(self.all()).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    /// Splits off as many pieces as fit into `size` bytes, at least one; `None` at the end.
    pub fn split(&mut self, size: usize) -> Option<Self> {
        let (mut length, mut count) = (0, 0);
        for piece in self.all() {
            if count > 0 && length + piece.len() > size {
                break;
            }
            length += piece.len();
            count += 1;
        }
        if count == 0 {
            return None;
        }
        self.left -= length;
        let pieces: Vec<Piece> = self.pieces.by_ref().take(count).collect();
        Some(Self { pieces: pieces.into_iter(), skip: std::mem::take(&mut self.skip), left: length })
    }

    /// Lets go of bytes that were sent.
    pub fn advance(&mut self, count: usize) {
        self.left -= count;
        self.skip += count;
        while let Some(first) = self.pieces.as_slice().first()
            && self.skip >= first.len()
        {
            self.skip -= first.len();
            self.pieces.next();
        }
    }
}
