//! Drives a load on a queue for the time of a sample.

use super::ground::{Ground, Lookups};
use super::load::{Load, Request};
use super::row::Row;
use super::sample::Sample;
use crate::front_end::{Completion, Data, Parts, QueueError, QueueGuard};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

pub(crate) struct Driven {
    pub(crate) sample: Sample,
    pub(crate) lookups: Lookups,
}

/// A server without a reply for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

struct Driver<'a> {
    queue: QueueGuard<'a>,
    load: Load<'a>,
    request: Request,
    /// By slot of buffers.
    lanes: Vec<usize>,
    unique: u64,
    operations: u64,
}

/// Drives a row on a queue, from when all queues are ready.
pub(crate) fn drive(
    ground: &Ground,
    row: &Row,
    queue: u16,
    time: Duration,
    start: &Barrier,
) -> Result<Driven, String> {
    let guard = ground.share().client().carrier().queue(queue);
    let ready = guard.ok_or_else(|| format!("there is no queue {queue}"));
    start.wait();
    let mut driver = Driver {
        queue: ready?,
        load: Load::new(ground, row.kind, row.depth, queue),
        request: Request::default(),
        lanes: Vec::new(),
        unique: 0,
        operations: 0,
    };
    let begin = Instant::now();
    driver.run(row.depth, begin + time)?;
    Ok(Driven {
        sample: Sample {
            operations: driver.operations,
            nanoseconds: begin.elapsed().as_nanos() as u64,
        },
        lookups: driver.load.into_lookups(),
    })
}

impl Driver<'_> {
    fn run(&mut self, depth: usize, end: Instant) -> Result<(), String> {
        for lane in 0..depth {
            self.submit(lane)?;
        }
        self.queue.notify().map_err(problem)?;
        while self.queue.in_flight() > 0 {
            let patience = Some(Instant::now() + PATIENCE);
            if !self.queue.wait(patience).map_err(problem)? {
                return Err("the server does not answer".to_owned());
            }
            let over = Instant::now() >= end;
            while let Some(completion) = self.queue.poll().map_err(problem)? {
                let lane = self.complete(completion)?;
                if !(over && self.load.may_stop(lane)) {
                    self.submit(lane)?;
                }
            }
            self.queue.notify().map_err(problem)?;
        }
        Ok(())
    }

    fn submit(&mut self, lane: usize) -> Result<(), String> {
        self.load.next(lane, &mut self.request);
        self.unique += 2;
        self.request.finish(self.unique);
        let parts = Parts {
            header: self.request.header.as_bytes(),
            arguments: &self.request.arguments,
            data: Data::AsItLies(self.request.data),
        };
        let token = self
            .queue
            .submit(&parts, Some(self.request.reply))
            .map_err(|error| error.to_string())?;
        let slot = token.slot();
        if self.lanes.len() <= slot {
            self.lanes.resize(slot + 1, 0);
        }
        self.lanes[slot] = lane;
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> Result<usize, String> {
        let lane = self.lanes[completion.token().slot()];
        let header = self.queue.reply_header(&completion);
        match header {
            Some(header) if header.error == 0 => {
                self.operations += self.load.done(lane, &self.queue, &completion)?;
            }
            Some(header) => return Err(thrufs::Errno::from_raw(-header.error).to_string()),
            None => return Err("a request was given back without a reply".to_owned()),
        }
        self.queue.free(completion);
        Ok(lane)
    }
}

fn problem(error: QueueError) -> String {
    error.to_string()
}
