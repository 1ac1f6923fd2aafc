//! The vhost-user messages of the front end: features, memory, queues.
//!
//! One thread reads and handles them in order. It passes changes to the queue threads by their [`Mailbox`].

mod migration;
mod moving;

use crate::config::DeviceConfig;
use crate::journal::{Inflight, new_memory};
use crate::mailbox::Mailbox;
use crate::memory::{DirtyLog, MemoryError, REGIONS_MAX, Region, Regions};
use crate::queue::VirtqueueFeatures;
use crate::session::MakeFileSystem;
use crate::shared::Shared;
use crate::vring::{Setup, Vring, VringError};
use moving::Moving;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
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

/// How much longer than a queue waits for its requests the control thread waits for the queue.
const MARGIN: Duration = Duration::from_secs(1);

impl From<VringError> for Error {
    fn from(error: VringError) -> Error {
        Error::ReqHandlerError(std::io::Error::other(error))
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Error {
        Error::ReqHandlerError(std::io::Error::other(error))
    }
}

pub(crate) struct Control<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    config: DeviceConfig,
    features: u64,
    regions: Regions,
    vrings: Vec<Vring>,
    /// Set by SET_LOG_BASE; used once LOG_ALL is negotiated.
    log: Option<Arc<DirtyLog>>,
    moving: Moving<M::FileSystem>,
    /// The channel for back-end requests. Kept open, not used yet.
    _front_end: Option<Backend>,
}

impl<M: MakeFileSystem> Control<M> {
    /// A device as before the first message, with a queue for each of `mailboxes`.
    pub(crate) fn new(
        shared: Arc<Shared<M>>,
        config: DeviceConfig,
        mailboxes: &[Arc<Mailbox>],
    ) -> Control<M> {
        let vring =
            |(number, mailbox): (usize, &Arc<Mailbox>)| Vring::new(number, Arc::clone(mailbox));
        Control {
            shared,
            config,
            features: 0,
            regions: Regions::default(),
            vrings: mailboxes.iter().enumerate().map(vring).collect(),
            log: None,
            moving: Moving::default(),
            _front_end: None,
        }
    }

    fn virtqueue_features(&self) -> VirtqueueFeatures {
        VirtqueueFeatures {
            event_index: self.features & VIRTIO_RING_F_EVENT_IDX != 0,
            indirect: self.features & VIRTIO_RING_F_INDIRECT_DESC != 0,
        }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.vrings
            .get_mut(index as usize)
            .ok_or(Error::InvalidParam)
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Vring)) -> Result<()> {
        change(self.vring(index)?);
        self.update(index as usize..index as usize + 1)
    }

    fn update(&mut self, numbers: Range<usize>) -> Result<()> {
        self.settle_before_starting()?;
        let (features, log) = (self.virtqueue_features(), self.log_in_force());
        let setup = Setup {
            regions: &self.regions,
            features,
            log: log.as_ref(),
            in_force: None,
        };
        for vring in &mut self.vrings[numbers] {
            vring.update(&self.shared, &setup)?;
        }
        Ok(())
    }

    fn set_regions(&mut self, regions: Regions) -> Result<()> {
        if let Some(log) = &self.log {
            self.check_log(log, &regions)?;
        }
        self.regions = regions;
        self.update(0..self.vrings.len())
    }

    /// Bytes of the in-flight table of each of these queues.
    fn check_tables(&self, asked: &VhostUserInflight) -> Result<usize> {
        let (queues, size) = (usize::from(asked.num_queues), asked.queue_size);
        let is_possible = (1..=self.vrings.len()).contains(&queues)
            && (1..=self.config.queue_size_max).contains(&size);
        is_possible
            .then(|| Inflight::bytes(usize::from(size)))
            .ok_or(Error::InvalidParam)
    }

    /// By when a queue must stop, which itself waits for the drain timeout.
    fn deadline(&self) -> Instant {
        Instant::now() + self.config.drain_timeout + MARGIN
    }

    /// Ends the session, and with it all lock waits; then stops all queues.
    fn stop_all(&mut self) -> Result<()> {
        self.shared.sessions.end();
        self.vrings.iter().for_each(Vring::begin_to_stop);
        let deadline = self.deadline();
        let mut result = Ok(());
        for vring in &mut self.vrings {
            result = result.and(vring.stop(deadline).map(drop));
        }
        if let Some(journal) = &self.shared.journal {
            journal.set_session(None);
        }
        // A queue may have begun another session before it stopped.
        self.shared.sessions.end();
        Ok(result?)
    }

    fn reset(&mut self) -> Result<()> {
        self.stop_all()?;
        self.vrings.iter_mut().for_each(Vring::reset);
        Ok(())
    }

    /// Ends all queues and the session. Returns how many threads are still busy at the deadline.
    pub(crate) fn end(&mut self) -> usize {
        let deadline = self.deadline();
        let mut stuck = usize::from(!self.moving.end(deadline));
        self.shared.sessions.end();
        self.vrings.iter().for_each(Vring::begin_to_stop);
        for vring in &mut self.vrings {
            if let Err(error) = vring.stop(deadline) {
                tracing::error!(%error, "cannot close the connection");
                stuck += 1;
            }
        }
        // A queue may have begun another session before it stopped.
        self.shared.sessions.end();
        let blocked = self.shared.pool.end(deadline);
        self.regions = Regions::default();
        if stuck + blocked == 0 && !self.shared.sessions.wait_until_gone(deadline) {
            return 1;
        }
        stuck + blocked
    }
}

fn descriptor(file: Option<File>) -> Option<Arc<OwnedFd>> {
    file.map(|file| Arc::new(OwnedFd::from(file)))
}

fn map(region: &VhostUserMemoryRegion, file: &File) -> Result<Region> {
    let VhostUserMemoryRegion {
        guest_phys_addr,
        memory_size,
        user_addr,
        mmap_offset,
    } = *region;
    Ok(Region::map(
        guest_phys_addr,
        user_addr,
        memory_size,
        file,
        mmap_offset,
    )?)
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
        if (before ^ features) & LOG_ALL != 0 {
            self.begin_or_end_logging()?;
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
            .map(|(region, file)| map(region, file))
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
        let regions = self.regions.with(map(region, &file)?)?;
        self.set_regions(regions)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let VhostUserMemoryRegion {
            guest_phys_addr,
            memory_size,
            user_addr,
            ..
        } = **region;
        let regions = self
            .regions
            .without(guest_phys_addr, user_addr, memory_size)?;
        self.set_regions(regions)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size_max = self.config.queue_size_max;
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
        if self.config.tag.is_some() {
            features |= VhostUserProtocolFeatures::CONFIG;
        }
        Ok(features)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let offered = self.get_protocol_features()?;
        if features & !offered.bits() != 0 {
            return Err(Error::InvalidParam);
        }
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.vrings.len() as u64)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        self.config.space(offset, size).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation(
            "the configuration is not the guest's to write",
        ))
    }

    fn set_backend_req_fd(&mut self, backend: Backend) {
        self._front_end = Some(backend);
    }

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
        self.moving.outcome().map_err(Error::ReqHandlerError)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, place: &VhostUserLog, file: File) -> Result<()> {
        let log = DirtyLog::map(&file, place.mmap_offset, place.mmap_size)?;
        self.check_log(&log, &self.regions)?;
        self.log = Some(Arc::new(log));
        self.renew_log()
    }
}
