//! What a check has at hand: a mounted share, and requests with their raw replies.

use super::finding::{Finding, Verdict, ensure, fail, skip};
use crate::front_end::{FIRST_REQUEST_QUEUE, FrontEnd};
use crate::tool::share::Share;
use std::time::{Duration, Instant};
use thrufs::Errno;
use thrufs_abi::{NodeId, Opcode, Reply, RequestBuilder, Unique};
use thrufs_testing::Client;

pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) run: fn(&Session) -> Verdict,
}

pub(super) struct Session {
    pub(super) share: Share,
    /// The checks change nothing outside it.
    pub(super) top: Result<NodeId, Errno>,
    pub(super) time_limit: Duration,
}

pub(super) struct Answer {
    pub(super) used: usize,
    pub(super) bytes: Vec<u8>,
}

impl Answer {
    /// Checks what Linux 7.1 requires of every reply: a length equal to header and used length, the request's
    /// unique id, and no body after an error.
    pub(super) fn check(&self, unique: u64) -> Result<Reply<'_>, Finding> {
        let Some(reply) = Reply::parse(&self.bytes) else {
            return fail(format!(
                "the used length is {}, which is not that of the reply's header",
                self.used
            ));
        };
        ensure(reply.unique == Unique(unique), || {
            format!("the reply to {unique} says {}", reply.unique)
        })?;
        ensure((-511..=0).contains(&reply.error), || {
            format!("{} is no error number", reply.error)
        })?;
        ensure(reply.error == 0 || reply.body.is_empty(), || {
            format!("an error reply has {} bytes", self.used)
        })?;
        Ok(reply)
    }
}

impl Session {
    pub(super) fn client(&self) -> &Client<FrontEnd> {
        self.share.client()
    }

    pub(super) fn top(&self) -> Result<NodeId, Finding> {
        self.top
            .or_else(|errno| skip(format!("no directory can be made: {errno}")))
    }

    pub(super) fn front_end(&self) -> &FrontEnd {
        self.client().carrier()
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.time_limit
    }

    pub(super) fn request(&self, opcode: Opcode, node: NodeId) -> (RequestBuilder, u64) {
        let unique = self.client().next_unique();
        (RequestBuilder::new(opcode, unique, node), unique.0)
    }

    /// Sends a request on a queue and returns the raw reply.
    pub(super) fn send_on(&self, queue: u16, request: &[u8]) -> Result<Answer, Finding> {
        let Some(mut queue) = self.front_end().queue(queue) else {
            return skip("there is no such queue");
        };
        let token = queue.submit_request(request)?;
        queue.notify()?;
        let deadline = self.deadline();
        while queue.wait(Some(deadline))? {
            while let Some(completion) = queue.poll()? {
                let mut bytes = Vec::new();
                queue.copy_reply(&completion, &mut bytes);
                let (used, own) = (completion.used_bytes(), completion.token() == token);
                queue.free(completion);
                if own {
                    let used = used as usize;
                    return Ok(Answer { used, bytes });
                }
            }
        }
        fail("the request was not given back")
    }

    pub(super) fn send(&self, request: &[u8]) -> Result<Answer, Finding> {
        self.send_on(FIRST_REQUEST_QUEUE, request)
    }

    /// Fails unless GETATTR of the root succeeds.
    pub(super) fn still_serves(&self) -> Verdict {
        match self.share.root().getattr(NodeId::ROOT) {
            Ok(_) => Ok(()),
            Err(errno) => fail(format!("afterwards, GETATTR of the root gives {errno}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn replies_are_checked_as_linux_7_1_does() {
        let answer = |len: u32, error: i32, unique: u64, used: usize| {
            let header = thrufs_abi::layout::OutHeader { len, error, unique };
            let mut bytes = zerocopy::IntoBytes::as_bytes(&header).to_vec();
            bytes.resize(used, 0);
            Answer { used, bytes }
        };
        assert!(answer(16, -2, 8, 16).check(8).is_ok());
        assert!(answer(20, 0, 8, 20).check(8).is_ok());
        assert!(answer(20, 0, 8, 24).check(8).is_err(), "used length");
        assert!(answer(20, -2, 8, 20).check(8).is_err(), "error with a body");
        assert!(answer(16, 0, 10, 16).check(8).is_err(), "another request's");
        assert!(answer(16, 5, 8, 16).check(8).is_err(), "positive");
        assert!(answer(16, -512, 8, 16).check(8).is_err(), "out of range");
        assert!(answer(16, 0, 8, 0).check(8).is_err(), "nothing written");
    }
}
