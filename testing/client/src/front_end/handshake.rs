//! The vhost-user handshake, from a socket to running queues, in the order of QEMU.

use super::config::FrontEndConfig;
use super::error::ConnectError;
use super::memory::{PAGE_BYTES, SharedMemory};
use super::ring::DriverRingLayout;
use super::window::WindowBehaviour;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost::vhost_user::{
    Frontend, VhostUserFrontend, VhostUserProtocolFeatures as ProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::{VhostBackend, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// Feature bits.
pub mod features {
    /// `VHOST_F_LOG_ALL`.
    pub const LOG_ALL: u64 = 1 << 26;
    /// `VIRTIO_RING_F_INDIRECT_DESC`.
    pub const INDIRECT_DESCRIPTORS: u64 = 1 << 28;
    /// `VIRTIO_RING_F_EVENT_IDX`.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// `VHOST_USER_F_PROTOCOL_FEATURES`.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// `VIRTIO_F_VERSION_1`.
    pub const VERSION_1: u64 = 1 << 32;
}

/// The protocol features to use where the server offers them.
const PROTOCOL_FEATURES: ProtocolFeatures = ProtocolFeatures::MQ
    .union(ProtocolFeatures::CONFIG)
    .union(ProtocolFeatures::REPLY_ACK)
    .union(ProtocolFeatures::CONFIGURE_MEM_SLOTS)
    .union(ProtocolFeatures::RESET_DEVICE)
    .union(ProtocolFeatures::LOG_SHMFD)
    .union(ProtocolFeatures::DEVICE_STATE);

/// `VHOST_VRING_F_LOG`.
const LOG_USED_RING: u32 = 1;

/// Most queues, with the high-priority queue.
pub(crate) const QUEUES_MAX: u16 = 65;

/// Largest window, so that guest addresses stay below 2^41.
const WINDOW_BYTES_MAX: u64 = 1 << 40;

/// `struct virtio_fs_config`: the tag, and a little-endian number.
const TAG_BYTES: usize = 36;
const CONFIG_BYTES: usize = TAG_BYTES + 4;

/// The features offered and negotiated.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// Features that the server offers.
    pub offered_features: u64,
    /// Negotiated features.
    pub features: u64,
    /// Those that are used.
    pub protocol_features: ProtocolFeatures,
    /// GET_QUEUE_NUM; 2 without MQ.
    pub queues_max: u64,
    /// The tag in the configuration space, if there is one.
    pub tag: Option<Vec<u8>>,
    /// The number of request queues in the configuration space, if there is one.
    pub config_request_queues: Option<u32>,
    /// Request queues in use.
    pub request_queues: u16,
}

impl Agreed {
    pub(crate) fn event_index(&self) -> bool {
        self.features & features::EVENT_INDEX != 0
    }

    pub(crate) fn indirect(&self) -> bool {
        self.features & features::INDIRECT_DESCRIPTORS != 0
    }
}

/// Called after each step; an error ends the handshake.
pub(crate) type Watch<'a> = &'a mut dyn FnMut() -> Result<(), ConnectError>;

fn message<T>(name: &'static str, result: vhost::Result<T>) -> Result<T, ConnectError> {
    result.map_err(|source| ConnectError::Message {
        message: name,
        source,
    })
}

/// Asks what the server offers, and says which protocol features are used.
pub(crate) fn negotiate(
    link: &mut Frontend,
    config: &FrontEndConfig,
    watch: Watch<'_>,
) -> Result<Agreed, ConnectError> {
    let offered = message("GET_FEATURES", link.get_features())?;
    watch()?;
    if offered & features::VERSION_1 == 0 {
        return Err(ConnectError::Missing("VIRTIO_F_VERSION_1"));
    }
    let mut agreed = Agreed {
        offered_features: offered,
        features: offered & wanted_features(config),
        protocol_features: ProtocolFeatures::empty(),
        queues_max: 2,
        tag: None,
        config_request_queues: None,
        request_queues: 1,
    };
    if offered & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0 {
        negotiate_protocol(link, config, &mut agreed, watch)?;
    }
    let most = u64::from(config.request_queues)
        .min(agreed.queues_max.saturating_sub(1))
        .min(agreed.config_request_queues.unwrap_or(u32::MAX).into());
    agreed.request_queues = most.min(QUEUES_MAX.into()) as u16;
    if agreed.request_queues == 0 {
        return Err(ConnectError::Missing("a request queue"));
    }
    Ok(agreed)
}

/// SET_OWNER and SET_FEATURES.
pub(crate) fn accept(
    link: &Frontend,
    agreed: &Agreed,
    watch: Watch<'_>,
) -> Result<(), ConnectError> {
    message("SET_OWNER", link.set_owner())?;
    watch()?;
    set_features(link, agreed.features)?;
    watch()
}

pub(crate) fn set_features(link: &Frontend, features: u64) -> Result<(), ConnectError> {
    message("SET_FEATURES", link.set_features(features))
}

pub(crate) fn set_log(link: &Frontend, log: &SharedMemory) -> Result<(), ConnectError> {
    let place = Some(log.log_place());
    message("SET_LOG_BASE", link.set_log_base(0, place))
}

fn wanted_features(config: &FrontEndConfig) -> u64 {
    let mut wanted = features::VERSION_1 | features::PROTOCOL_FEATURES;
    if config.event_index {
        wanted |= features::EVENT_INDEX;
    }
    if config.indirect_descriptors {
        wanted |= features::INDIRECT_DESCRIPTORS;
    }
    wanted
}

fn negotiate_protocol(
    link: &mut Frontend,
    config: &FrontEndConfig,
    agreed: &mut Agreed,
    watch: Watch<'_>,
) -> Result<(), ConnectError> {
    let offered = message("GET_PROTOCOL_FEATURES", link.get_protocol_features())?;
    agreed.protocol_features = offered & PROTOCOL_FEATURES;
    if let Some(needed) = needed_by_window(config)
        && offered.contains(needed)
    {
        agreed.protocol_features |= needed;
    }
    message(
        "SET_PROTOCOL_FEATURES",
        link.set_protocol_features(agreed.protocol_features),
    )?;
    if agreed
        .protocol_features
        .contains(ProtocolFeatures::REPLY_ACK)
    {
        link.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    watch()?;
    if agreed.protocol_features.contains(ProtocolFeatures::MQ) {
        agreed.queues_max = message("GET_QUEUE_NUM", link.get_queue_num())?;
        watch()?;
    }
    if agreed.protocol_features.contains(ProtocolFeatures::CONFIG) {
        let (tag, queues) = read_config(link)?;
        agreed.tag = Some(tag);
        agreed.config_request_queues = Some(queues);
        watch()?;
    }
    Ok(())
}

/// The protocol features that the configured window needs.
fn needed_by_window(config: &FrontEndConfig) -> Option<ProtocolFeatures> {
    let needed = ProtocolFeatures::SHMEM
        | ProtocolFeatures::BACKEND_REQ
        | ProtocolFeatures::BACKEND_SEND_FD
        | ProtocolFeatures::REPLY_ACK;
    Some(match config.window?.behaviour {
        WindowBehaviour::AsSpecified => needed,
        WindowBehaviour::AsQemu => needed | ProtocolFeatures::CONFIGURE_MEM_SLOTS,
    })
}

/// Bytes of the configured window (GET_SHMEM_CONFIG); `None` when the server has none.
pub(crate) fn window_bytes(
    link: &mut Frontend,
    config: &FrontEndConfig,
    agreed: &Agreed,
) -> Result<Option<u64>, ConnectError> {
    let needed = needed_by_window(config);
    if needed.is_none_or(|needed| !agreed.protocol_features.contains(needed)) {
        return Ok(None);
    }
    let regions = message("GET_SHMEM_CONFIG", link.get_shmem_config())?;
    let bytes = regions.memory_sizes[0];
    if regions.nregions == 0 || bytes == 0 {
        return Ok(None);
    }
    if bytes % PAGE_BYTES as u64 != 0 || bytes > WINDOW_BYTES_MAX {
        return Err(ConnectError::Missing(
            "a window of whole pages, up to 1 TiB",
        ));
    }
    Ok(Some(bytes))
}

/// SET_BACKEND_REQ_FD: gives the server its end of the back-end channel.
pub(crate) fn give_channel(link: &mut Frontend, end: &UnixStream) -> Result<(), ConnectError> {
    let end: &dyn AsRawFd = end;
    message("SET_BACKEND_REQ_FD", link.set_backend_request_fd(end))
}

fn read_config(link: &mut Frontend) -> Result<(Vec<u8>, u32), ConnectError> {
    let room = [0; CONFIG_BYTES];
    let flags = VhostUserConfigFlags::empty();
    let answer = link.get_config(0, CONFIG_BYTES as u32, flags, &room);
    let (_, bytes) = message("GET_CONFIG", answer)?;
    let (tag, number) = bytes
        .split_first_chunk::<TAG_BYTES>()
        .ok_or(ConnectError::Missing("a whole configuration space"))?;
    let end = tag.iter().position(|&byte| byte == 0).unwrap_or(tag.len());
    let number = number
        .first_chunk()
        .ok_or(ConnectError::Missing("a whole configuration space"))?;
    Ok((tag[..end].to_vec(), u32::from_le_bytes(*number)))
}

pub(crate) fn share_memory(link: &Frontend, memory: &SharedMemory) -> Result<(), ConnectError> {
    message(
        "SET_MEM_TABLE",
        link.set_mem_table(&[memory.table_entry()]).map(drop),
    )
}

pub(crate) struct QueuePlace<'a> {
    pub(crate) index: u16,
    pub(crate) layout: DriverRingLayout,
    /// The available index at which the device starts.
    pub(crate) base: u16,
    pub(crate) kick: &'a EventFd,
    pub(crate) call: &'a EventFd,
}

pub(crate) fn place_queue(
    link: &Frontend,
    memory: &SharedMemory,
    place: &QueuePlace<'_>,
) -> Result<(), ConnectError> {
    let index = usize::from(place.index);
    let layout = place.layout;
    message("SET_VRING_NUM", link.set_vring_num(index, layout.size))?;
    message("SET_VRING_BASE", link.set_vring_base(index, place.base))?;
    place_ring(link, memory, place.index, layout, false)?;
    message("SET_VRING_CALL", link.set_vring_call(index, place.call))?;
    message("SET_VRING_KICK", link.set_vring_kick(index, place.kick))
}

/// SET_VRING_ADDR, with logging of the used ring or not.
pub(crate) fn place_ring(
    link: &Frontend,
    memory: &SharedMemory,
    index: u16,
    layout: DriverRingLayout,
    logged: bool,
) -> Result<(), ConnectError> {
    let addresses = VringConfigData {
        queue_max_size: layout.size,
        queue_size: layout.size,
        flags: if logged { LOG_USED_RING } else { 0 },
        desc_table_addr: memory.user_address(layout.descriptors),
        used_ring_addr: memory.user_address(layout.used),
        avail_ring_addr: memory.user_address(layout.available),
        log_addr: logged.then(|| memory.guest_address(layout.used)),
    };
    message(
        "SET_VRING_ADDR",
        link.set_vring_addr(index.into(), &addresses),
    )
}

/// SET_VRING_ENABLE. Not sent without protocol features: queues are enabled as they start.
pub(crate) fn enable_queue(
    link: &mut Frontend,
    agreed: &Agreed,
    index: u16,
    enable: bool,
) -> Result<(), ConnectError> {
    if agreed.features & features::PROTOCOL_FEATURES == 0 {
        return Ok(());
    }
    message(
        "SET_VRING_ENABLE",
        link.set_vring_enable(index.into(), enable),
    )
}

/// GET_VRING_BASE: stops a queue and returns its available index.
pub(crate) fn stop_queue(link: &Frontend, index: u16) -> Result<u16, ConnectError> {
    let base = message("GET_VRING_BASE", link.get_vring_base(index.into()))?;
    Ok(base as u16)
}

pub(crate) fn link(stream: &UnixStream) -> Result<Frontend, ConnectError> {
    let own = stream.try_clone()?;
    Ok(Frontend::from_stream(own, QUEUES_MAX.into()))
}
