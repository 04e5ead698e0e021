//! Where a thread runs and how much it matters: pinning, nice, and the real-time class of the control core.

use rustix::process::setpriority_process;

use crate::ids::Errno;

/// The CPUs this thread may use, ascending. Ask before the first pinning: a pinned thread sees only its own.
pub fn allowed_cpus() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}

/// Pins the calling thread to one CPU. Says whether that worked; without it the thread runs all the same.
pub fn pin(cpu: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
}

/// Sets the nice value of the calling thread, −20 (first) to 19 (last); below 0 needs CAP_SYS_NICE or RLIMIT_NICE.
pub fn nice(value: i32) -> Result<(), Errno> {
    // On Linux priorities belong to threads: process "none" is the calling thread (setpriority(2), NOTES).
    setpriority_process(None, value).map_err(|error| Errno(error.raw_os_error()))
}

/// Puts the calling thread into SCHED_FIFO at priority 1, ahead of everything that is not real-time.
///
/// # Errors
/// `EPERM` without CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn become_real_time() -> Result<(), Errno> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread; the structure lives through the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) };
    if result == 0 { Ok(()) } else { Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM))) }
}

/// A kernel CPU mask; CPUs beyond the mask's 1,024 are left out.
pub fn cpu_set(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: a mask of zeros is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: inside the mask, as filtered.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_sees_only_its_own_cpu() {
        let cpus = allowed_cpus();
        let last = *cpus.last().expect("at least one CPU");
        let seen = std::thread::spawn(move || (pin(last), allowed_cpus())).join().expect("thread");
        assert_eq!(seen, (true, vec![last]));
        assert_eq!(allowed_cpus(), cpus, "other threads keep theirs");
    }

    #[test]
    fn a_thread_may_always_become_less_important() {
        let result = std::thread::spawn(|| nice(10)).join().expect("thread");
        assert_eq!(result, Ok(()));
    }
}
