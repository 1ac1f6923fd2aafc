//! Checks of the features that a server offers on the socket and in INIT.

use super::finding::{Verdict, ensure, skip};
use crate::front_end::{FrontEnd, ProtocolFeatures, features};
use thrufs_abi::InitFlags;
use thrufs_abi::version::{KERNEL_MINOR, KERNEL_VERSION, MIN_MINOR};
use thrufs_testing::{Client, OFFERED_BY_GUESTS};

pub(super) struct OfferCheck {
    pub(super) name: &'static str,
    pub(super) run: fn(&Client<FrontEnd>) -> Verdict,
}

const fn check(name: &'static str, run: fn(&Client<FrontEnd>) -> Verdict) -> OfferCheck {
    OfferCheck { name, run }
}

pub(super) const CHECKS: &[OfferCheck] = &[
    check("offer-features", ring_features),
    check("offer-protocol-features", protocol_features),
    check("offer-tag", tag),
    check("offer-queues", queues),
    check("init-version", version),
    check("init-max-write", max_write),
    check("init-only-offered", only_offered),
    check("init-nothing-for-other-transports", no_other_transport),
];

const MAX_WRITE_MIN: u32 = 4096;

fn ring_features(client: &Client<FrontEnd>) -> Verdict {
    let offered = client.carrier().agreed().offered_features;
    for (name, bit) in [
        ("VIRTIO_F_VERSION_1", features::VERSION_1),
        ("VIRTIO_RING_F_EVENT_IDX", features::EVENT_INDEX),
        (
            "VIRTIO_RING_F_INDIRECT_DESC",
            features::INDIRECT_DESCRIPTORS,
        ),
        (
            "VHOST_USER_F_PROTOCOL_FEATURES",
            features::PROTOCOL_FEATURES,
        ),
    ] {
        ensure(offered & bit != 0, || format!("{name} is not offered"))?;
    }
    Ok(())
}

fn protocol_features(client: &Client<FrontEnd>) -> Verdict {
    let offered = client.carrier().agreed().offered_protocol_features;
    let needed = ProtocolFeatures::MQ | ProtocolFeatures::REPLY_ACK;
    ensure(offered.contains(needed), || {
        format!("{offered:?} has not both MQ and REPLY_ACK")
    })
}

fn tag(client: &Client<FrontEnd>) -> Verdict {
    let Some(tag) = client.carrier().tag() else {
        return skip("the server leaves the configuration space to the virtual machine");
    };
    ensure(!tag.is_empty(), || "the tag is empty".to_owned())?;
    ensure(std::str::from_utf8(tag).is_ok(), || {
        format!("the tag `{}` is not UTF-8", tag.escape_ascii())
    })
}

fn queues(client: &Client<FrontEnd>) -> Verdict {
    let agreed = client.carrier().agreed();
    ensure(agreed.queues_max >= 2, || {
        format!("there are only {} queues", agreed.queues_max)
    })?;
    let Some(said) = agreed.config_request_queues else {
        return Ok(());
    };
    ensure(said >= 1 && u64::from(said) < agreed.queues_max, || {
        format!(
            "{said} request queues in the configuration space, {} queues in all",
            agreed.queues_max
        )
    })
}

fn version(client: &Client<FrontEnd>) -> Verdict {
    let greeting = client.greeting();
    let minors = MIN_MINOR..=KERNEL_MINOR;
    ensure(
        greeting.major == KERNEL_VERSION && minors.contains(&greeting.minor),
        || format!("it speaks {}.{}", greeting.major, greeting.minor),
    )
}

fn max_write(client: &Client<FrontEnd>) -> Verdict {
    let max_write = client.greeting().max_write;
    ensure(max_write >= MAX_WRITE_MIN, || {
        format!("max_write is {max_write}")
    })?;
    if client.agreed().contains(InitFlags::MAX_PAGES) {
        let pages = u64::from(client.greeting().max_pages);
        ensure(pages * 4096 >= u64::from(max_write), || {
            format!("max_write is {max_write} in {pages} pages")
        })?;
    }
    Ok(())
}

fn only_offered(client: &Client<FrontEnd>) -> Verdict {
    let extra = client.agreed().difference(OFFERED_BY_GUESTS);
    ensure(extra.is_empty(), || {
        format!("it agrees to {extra:?}, which was not offered")
    })
}

/// A guest's requests would block for ever, or its opens fail.
fn no_other_transport(client: &Client<FrontEnd>) -> Verdict {
    let wrong = InitFlags::OVER_IO_URING | InitFlags::PASSTHROUGH;
    let agreed = client.agreed() & wrong;
    ensure(agreed.is_empty(), || format!("it agrees to {agreed:?}"))
}
