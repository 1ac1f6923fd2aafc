//! The memory that the allocator keeps.

// Why `unsafe`: neither rustix nor the standard library has a word for it.
#![allow(unsafe_code)]

/// Gives pages that the allocator keeps for later back to the system. It goes through all of the heap and
/// holds a part of it locked meanwhile: for when much has been freed, and never on the way of a request.
///
/// Follows malloc_trim(3). Nothing happens with another C library than glibc.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
