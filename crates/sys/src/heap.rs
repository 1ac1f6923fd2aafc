//! Memory that the allocator keeps.

// `unsafe`: neither rustix nor the standard library has this call.
#![allow(unsafe_code)]

/// Returns free pages of the allocator to the system (malloc_trim(3)). It walks all of the heap with a part
/// of it locked: for when much has been freed, never while a request is carried out. Only with glibc.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
