//! Reads from many threads at once.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::time::Instant;

const BYTES: usize = 4096;

/// Each of `reads` threads reads `rounds` times. Prints the seconds from the first begin to the last end.
pub fn read(file: &str, reads: usize, rounds: usize) {
    let file = File::open(file).unwrap();
    let begin = Barrier::new(reads + 1);
    let (file, begin) = (&file, &begin);
    let seconds = std::thread::scope(|scope| {
        for thread in 0..reads {
            let reader = move || {
                let mut buffer = [0; BYTES];
                begin.wait();
                for _ in 0..rounds {
                    file.read_exact_at(&mut buffer, (thread * BYTES) as u64)
                        .unwrap();
                }
                begin.wait();
            };
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, reader).unwrap();
        }
        begin.wait();
        let started = Instant::now();
        begin.wait();
        started.elapsed().as_secs_f64()
    });
    println!("{seconds}");
}
