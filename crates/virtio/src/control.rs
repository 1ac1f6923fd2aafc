//! The vhost-user messages of the front end: features, memory, queues.
//!
//! One thread reads and handles them in order. It passes changes to the queue threads by their [`Mailbox`].

mod migration;

use crate::journal::{Inflight, new_memory};
use crate::mailbox::Mailbox;
use crate::memory::{DirtyLog, MemoryError, REGIONS_MAX, Region, Regions};
use crate::queue::VirtqueueFeatures;
use crate::session::MakeFileSystem;
use crate::shared::Shared;
use crate::transfer::{Moved, Transfer};
use crate::vring::{Setup, Vring, VringError};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_sys::shared_memory::SharedMapping;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Backend, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};

const VIRTIO_F_VERSION_1: u64 = 1 << 32;
const VIRTIO_RING_F_EVENT_IDX: u64 = 1 << 29;
const VIRTIO_RING_F_INDIRECT_DESC: u64 = 1 << 28;
const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
const LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();

const FEATURES: u64 = VIRTIO_F_VERSION_1
    | VIRTIO_RING_F_EVENT_IDX
    | VIRTIO_RING_F_INDIRECT_DESC
    | PROTOCOL_FEATURES
    | LOG_ALL;

/// Without these, SHMEM_MAP cannot be sent, or has no reply.
const OF_WINDOW: VhostUserProtocolFeatures = VhostUserProtocolFeatures::SHMEM
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::BACKEND_SEND_FD)
    .union(VhostUserProtocolFeatures::REPLY_ACK);

/// How much longer than a queue waits for its requests the control thread waits for the queue.
const MARGIN: Duration = Duration::from_secs(1);

impl From<VringError> for Error {
    fn from(error: VringError) -> Error {
        failed(error)
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Error {
        failed(error)
    }
}

fn failed(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(why))
}

pub(crate) struct Control<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    features: u64,
    protocol_features: u64,
    setup: Setup,
    vrings: Vec<Vring>,
    /// Set by SET_LOG_BASE; used once LOG_ALL is negotiated.
    log: Option<Arc<DirtyLog>>,
    /// The migration in progress.
    transfer: Option<Transfer<Moved<M>>>,
    /// The result of the last one, until the front end asks for it or begins another.
    transferred: Option<io::Result<()>>,
}

impl<M: MakeFileSystem> Control<M> {
    /// A device as before the first message, with a queue for each of `mailboxes`.
    pub(crate) fn new(shared: Arc<Shared<M>>, mailboxes: &[Arc<Mailbox>]) -> Control<M> {
        let vring =
            |(number, mailbox): (usize, &Arc<Mailbox>)| Vring::new(number, Arc::clone(mailbox));
        Control {
            shared,
            features: 0,
            protocol_features: 0,
            setup: Setup::default(),
            vrings: mailboxes.iter().enumerate().map(vring).collect(),
            log: None,
            transfer: None,
            transferred: None,
        }
    }

    /// Uses the channel for the window, if the front end has agreed on all that it takes.
    pub(crate) fn connect_window(&self, channel: UnixStream) {
        let agreed = self.protocol_features & OF_WINDOW.bits() == OF_WINDOW.bits();
        if let Some(window) = self.shared.window.as_ref().filter(|_| agreed) {
            window.connect(channel);
        }
    }

    fn map(&self, region: &VhostUserMemoryRegion, file: &File) -> Result<Region> {
        let (guest, user) = (region.guest_phys_addr, region.user_addr);
        let (length, offset) = (region.memory_size, region.mmap_offset);
        let window = self.shared.window.as_ref();
        Ok(match window.filter(|window| window.state.is_part(file)) {
            None => Region::map(guest, user, length, file, offset)?,
            Some(window) => {
                let mapped = Region::map_window(guest, user, length, file, offset)?;
                window.state.note_announced();
                mapped
            }
        })
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.vrings
            .get_mut(index as usize)
            .ok_or(Error::InvalidParam)
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<()> {
        change(self.vring(index)?);
        self.settle_before_starting()?;
        Ok(self.vrings[index as usize].update(&self.shared, &self.setup, None)?)
    }

    fn set_regions(&mut self, regions: Regions) -> Result<()> {
        if let Some(log) = &self.log {
            self.check_log(log, &regions)?;
        }
        self.setup.regions = regions;
        self.settle_before_starting()?;
        for vring in &mut self.vrings {
            vring.update(&self.shared, &self.setup, None)?;
        }
        Ok(())
    }

    /// Bytes of the in-flight table of each of these queues.
    fn check_tables(&self, asked: &VhostUserInflight) -> Result<usize> {
        let (queues, size) = (usize::from(asked.num_queues), asked.queue_size);
        let is_possible = (1..=self.vrings.len()).contains(&queues)
            && (1..=self.shared.config.queue_size_max).contains(&size);
        is_possible
            .then(|| Inflight::bytes(usize::from(size)))
            .ok_or(Error::InvalidParam)
    }

    /// By when a queue must stop, which itself waits for the drain timeout.
    fn deadline(&self) -> Instant {
        Instant::now() + self.shared.config.drain_timeout + MARGIN
    }

    /// Ends the session, and with it all lock waits; then stops all queues. Returns why some do not end.
    fn stop_all(&mut self, deadline: Instant) -> Vec<VringError> {
        self.shared.sessions.end();
        self.vrings.iter().for_each(Vring::begin_to_stop);
        let vrings = self.vrings.iter_mut();
        let errors = vrings.filter_map(|vring| vring.stop(deadline).err());
        let errors = errors.collect();
        // A queue may have begun another session before it stopped.
        self.shared.sessions.end();
        errors
    }

    fn reset(&mut self) -> Result<()> {
        let errors = self.stop_all(self.deadline());
        if let Some(journal) = &self.shared.journal {
            journal.set_session(None);
        }
        errors.into_iter().next().map_or(Ok(()), Err)?;
        self.vrings.iter_mut().for_each(Vring::reset);
        Ok(())
    }

    /// Ends all queues and the session. Returns how many threads are still busy at the deadline.
    pub(crate) fn end(&mut self) -> usize {
        let deadline = self.deadline();
        let transfer = self.transfer.take();
        let mut stuck = usize::from(transfer.is_some_and(|transfer| !transfer.end(deadline)));
        for error in self.stop_all(deadline) {
            tracing::error!(%error, "cannot close the connection");
            stuck += 1;
        }
        stuck += self.shared.pool.end(deadline);
        if let Some(window) = &self.shared.window {
            stuck += usize::from(!window.end(deadline));
        }
        self.setup.regions = Regions::default();
        if stuck == 0 && !self.shared.sessions.wait_until_gone(deadline) {
            return 1;
        }
        stuck
    }
}

fn descriptor(file: Option<File>) -> Option<Arc<OwnedFd>> {
    file.map(|file| Arc::new(OwnedFd::from(file)))
}

fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("it was not offered"))
}

impl<M: MakeFileSystem> VhostUserBackendReqHandlerMut for Control<M> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !FEATURES != 0 {
            return Err(Error::InvalidParam);
        }
        let before = std::mem::replace(&mut self.features, features);
        self.setup.features = VirtqueueFeatures {
            event_index: features & VIRTIO_RING_F_EVENT_IDX != 0,
            indirect: features & VIRTIO_RING_F_INDIRECT_DESC != 0,
        };
        if (before ^ features) & LOG_ALL != 0 {
            if features & LOG_ALL == 0 {
                self.log = None;
            }
            self.renew_log()?;
        }
        if features & PROTOCOL_FEATURES == 0 {
            // Without them there is no SET_VRING_ENABLE.
            for index in 0..self.vrings.len() {
                self.change(index as u32, |vring| vring.enabled = true)?;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped: Result<Vec<Region>> = regions
            .iter()
            .zip(&files)
            .map(|(region, file)| self.map(region, file))
            .collect();
        self.set_regions(Regions::new(mapped?)?)?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        let regions = self.setup.regions.with(self.map(region, &file)?)?;
        self.set_regions(regions)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, user) = (region.guest_phys_addr, region.user_addr);
        let regions = &self.setup.regions;
        self.set_regions(regions.without(guest, user, region.memory_size)?)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size_max = self.shared.config.queue_size_max;
        let vring = self.vring(index)?;
        vring.require_stopped()?;
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        if !size.is_power_of_two() || size > size_max {
            return Err(Error::InvalidParam);
        }
        vring.layout.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        self.log_used_ring(index, is_logged.then_some(log))?;
        let vring = self.vring(index)?;
        let mut layout = vring.layout;
        (layout.descriptors, layout.available, layout.used) = (descriptors, available, used);
        if layout == vring.layout {
            return Ok(());
        }
        vring.require_stopped()?;
        self.change(index, |vring| vring.layout = layout)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let vring = self.vring(index)?;
        vring.require_stopped()?;
        vring.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let deadline = self.deadline();
        let base = self.vring(index)?.stop(deadline)?;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        // A queue without a kick would have to be polled.
        let kick = descriptor(file).ok_or(Error::InvalidParam)?;
        let agreed = self.features & PROTOCOL_FEATURES != 0;
        self.change(index.into(), |vring| {
            vring.kick = Some(kick);
            vring.enabled |= !agreed;
        })
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.change(index.into(), |vring| vring.call = descriptor(file))
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.change(index.into(), |vring| vring.error = descriptor(file))
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.change(index, |vring| vring.enabled = enable)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        let mut features = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::DEVICE_STATE
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        if self.shared.config.tag.is_some() {
            features |= VhostUserProtocolFeatures::CONFIG;
        }
        if self.shared.config.window_bytes.is_some() {
            features |= OF_WINDOW;
            features -= VhostUserProtocolFeatures::DEVICE_STATE;
        }
        Ok(features)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_protocol_features()?;
        if features & !offered.bits() != 0 {
            return Err(Error::InvalidParam);
        }
        self.protocol_features = features;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.vrings.len() as u64)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let space = self.shared.config.space(offset, size);
        space.ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation(
            "the configuration is not the guest's to write",
        ))
    }

    /// The window has its own descriptor of it ([`back_end_channel`](crate::window::back_end_channel)): the
    /// sender of `vhost` waits without a limit.
    fn set_backend_req_fd(&mut self, _: Backend) {}

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let bytes = self.check_tables(asked)? * usize::from(asked.num_queues);
        let file = new_memory("thrufs-inflight", bytes).map_err(Error::ReqHandlerError)?;
        let given = VhostUserInflight {
            mmap_size: bytes as u64,
            mmap_offset: 0,
            ..*asked
        };
        Ok((given, file.into()))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let each = self.check_tables(given)?;
        let bytes = each * usize::from(given.num_queues);
        if given.mmap_size < bytes as u64 {
            return Err(Error::InvalidParam);
        }
        let mapping = SharedMapping::new(file.as_fd(), given.mmap_offset, bytes);
        let mapping = Arc::new(mapping.map_err(|errno| Error::ReqHandlerError(errno.into()))?);
        for (number, vring) in self.vrings.iter_mut().enumerate() {
            vring.require_stopped()?;
            let is_there = number < usize::from(given.num_queues);
            vring.table = is_there
                .then(|| Inflight::new(Arc::clone(&mapping), number * each, given.queue_size))
                .flatten();
        }
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        direction: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        file: File,
    ) -> Result<Option<File>> {
        let begun = self.begin_to_move(direction, file.into());
        // The answer has no room for the reason.
        begun.inspect_err(|error| tracing::error!(%error, "cannot migrate the device state"))?;
        Ok(None)
    }

    fn check_device_state(&mut self) -> Result<()> {
        self.settle();
        let moved = self.transferred.take();
        let moved = moved.ok_or_else(|| failed("no state is being moved"))?;
        moved.map_err(Error::ReqHandlerError)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        let Some(bytes) = self.shared.config.window_bytes else {
            return not_offered();
        };
        Ok(VhostUserShMemConfig::new(1, &[bytes.get()]))
    }

    fn set_log_base(&mut self, place: &VhostUserLog, file: File) -> Result<()> {
        let log = DirtyLog::map(&file, place.mmap_offset, place.mmap_size)?;
        self.check_log(&log, &self.setup.regions)?;
        self.log = Some(Arc::new(log));
        self.renew_log()
    }
}
