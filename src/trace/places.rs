//! Where the rows of a table stand in the input, while it is built: four bytes a row.

/// The places of rows, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// How far behind the base of its piece each row is.
    distances: Vec<u32>,
    /// The first row of each piece, and the place that the distances of its rows are counted from.
    pieces: Vec<(usize, u64)>,
}

/// The distance of a row whose place nobody told.
const UNKNOWN: u32 = u32::MAX;

impl Places {
    /// Adds a row.
    #[inline(always)]
    pub(super) fn push(&mut self, place: Option<u64>) {
        let distance = match (place, self.pieces.last()) {
            (None, _) => UNKNOWN,
            (Some(place), Some((_, base))) => match place.checked_sub(*base) {
                Some(distance) if distance < u64::from(UNKNOWN) => distance as u32,
                _ => self.begin_piece(place),
            },
            (Some(place), None) => self.begin_piece(place),
        };
        self.distances.push(distance);
    }

    /// Begins a piece with the next row, which stands at its base.
    #[cold]
    fn begin_piece(&mut self, base: u64) -> u32 {
        self.pieces.push((self.distances.len(), base));
        0
    }

    /// Forgets all rows, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.distances.clear();
        self.pieces.clear();
    }

    /// Adds the rows of `next` behind these.
    pub(super) fn append(&mut self, next: &Self) {
        let rows = self.distances.len();
        self.pieces.extend(next.pieces.iter().map(|(first, base)| (rows + first, *base)));
        self.distances.extend_from_slice(&next.distances);
    }

    /// The place of a row, where it was told.
    pub(super) fn get(&self, row: usize) -> Option<u64> {
        let distance = self.distances.get(row).filter(|distance| **distance != UNKNOWN)?;
        let piece = self.pieces.partition_point(|(first, _)| *first <= row).checked_sub(1)?;
        Some(self.pieces[piece].1 + u64::from(*distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_far_apart_backwards_and_unknown_are_kept() {
        let told = [Some(5), Some(9), None, Some(1 << 33), Some((1 << 33) + 7), Some(3)];
        let mut places = Places::default();
        told.iter().for_each(|place| places.push(*place));
        let mut joined = Places::default();
        joined.push(None);
        joined.append(&places);
        for (row, place) in told.into_iter().enumerate() {
            assert_eq!((places.get(row), joined.get(row + 1)), (place, place), "{row}");
        }
        assert_eq!((joined.get(0), places.get(9)), (None, None));
    }
}
