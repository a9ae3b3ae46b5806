//! Work on large objects, done so that nobody else waits for it.
//!
//! A thread of the runtime serves many requests in turns, and a request keeps it from one await to the next: some 30 ms to
//! decode, check and encode a megabyte, in which all that wait for this thread wait. The thread that does such a piece is
//! given up to it: another one serves the others meanwhile, and the system divides the processors among both.

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

/// From how many bytes on a piece of work is worth a thread: it takes some milliseconds then.
const HEAVY: usize = 128 * 1024;

/// Does a piece of work on about so many bytes.
pub fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    // A runtime of one thread has nobody to take over.
    let several = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    match bytes >= HEAVY && Handle::try_current().is_ok_and(several) {
        true => block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};
    use tokio::runtime::Builder;

    #[test]
    fn others_are_served_while_large_work_is_done() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (tell, told) = mpsc::channel();
        let large = runtime.spawn(async move {
            // The only thread of the runtime is busy here until somebody else was served.
            heavy(HEAVY, || told.recv_timeout(Duration::from_secs(60)))
        });
        runtime.spawn(async move { tell.send(()) });
        assert_eq!(runtime.block_on(large).unwrap(), Ok(()));
    }

    #[test]
    fn small_work_and_a_runtime_of_one_thread_need_nobody_else() {
        assert_eq!(heavy(HEAVY, || 1), 1, "no runtime at all");
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { (heavy(HEAVY, || 1), heavy(0, || 2)) }), (1, 2));
    }
}
