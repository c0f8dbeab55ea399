//! What the tasks of a run may take of the machine together: threads and memory.

/// What one task takes while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Threads.
    pub(crate) threads: usize,
    /// Bytes; nothing where the engine has no limit.
    pub(crate) memory: usize,
}

/// What is free for tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    all: Share,
    free: Share,
}

#[cfg(test)]
impl Share {
    /// One thread, and no memory that is counted.
    pub(crate) const ONE: Self = Self { threads: 1, memory: 0 };
}

impl Room {
    /// Room for tasks that take no more than `all` together.
    pub(crate) fn new(all: Share) -> Self {
        let all = Share { threads: all.threads.max(1), ..all };
        Self { all, free: all }
    }

    /// Takes the share of a task, or says that it has to wait. A task that asks for more than there is runs alone.
    pub(crate) fn take(&mut self, share: Share) -> bool {
        let share = self.bounded(share);
        let fits = share.threads <= self.free.threads && share.memory <= self.free.memory;
        if fits {
            self.free.threads -= share.threads;
            self.free.memory -= share.memory;
        }
        fits
    }

    /// Gives back what was taken.
    pub(crate) fn give(&mut self, share: Share) {
        let share = self.bounded(share);
        self.free.threads += share.threads;
        self.free.memory += share.memory;
    }

    fn bounded(&self, share: Share) -> Share {
        Share { threads: share.threads.clamp(1, self.all.threads), memory: share.memory.min(self.all.memory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_come_to_more_than_there_is() {
        let mut room = Room::new(Share { threads: 4, memory: 100 });
        let (light, heavy) = (Share { threads: 1, memory: 30 }, Share { threads: 3, memory: 60 });
        assert!(room.take(heavy) && room.take(light));
        assert!(!room.take(light), "one thread is free, but it has 10 of 30 bytes");
        room.give(heavy);
        assert!(room.take(light) && room.take(light) && !room.take(light));
        for _ in 0..3 {
            room.give(light);
        }
        let huge = Share { threads: 9, memory: 900 };
        assert!(room.take(huge) && !room.take(Share::ONE));
        room.give(huge);
        assert!(room.take(heavy));
    }

    #[test]
    fn without_a_limit_memory_does_not_count() {
        let mut room = Room::new(Share { threads: 2, memory: 0 });
        let task = Share { threads: 1, memory: 1 << 30 };
        assert!(room.take(task) && room.take(task) && !room.take(task));
    }
}
