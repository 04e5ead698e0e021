//! Which thread runs on which CPU.

use super::Host;

/// The threads of a broker and their CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// CPU of each data core, by core id.
    pub data_cpus: Vec<usize>,
    /// CPU of the control core.
    pub control_cpu: usize,
    /// CPUs of the background thread and of cold-read workers.
    pub background_cpus: Vec<usize>,
    /// Whether threads are tied to their CPUs.
    pub pin: bool,
    /// Fewer CPUs than threads: io-wq workers are bounded, stall timeouts are longer, and no thread is real-time.
    pub small_host: bool,
    /// How long an idle data core spins before it sleeps, in µs.
    pub busy_poll_us: u32,
}

impl Threads {
    /// io-wq workers per ring of a data core; `None` leaves it to the kernel.
    pub fn io_workers_max(&self) -> Option<u32> {
        self.small_host.then_some(2)
    }

    /// What stall and control timeouts are multiplied with unless set.
    pub fn patience(&self) -> u64 {
        if self.small_host { 5 } else { 1 }
    }
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish<'a> {
    pub cores: Option<&'a str>,
    pub control: Option<usize>,
    pub background: Option<&'a str>,
    pub pin: Option<bool>,
    pub busy_poll_us: u32,
}

/// Distributes the threads over the host's CPUs. The error names the setting.
pub(super) fn distribute(wish: &Wish, host: &Host) -> Result<Threads, String> {
    let cpus = &host.cpus;
    assert!(!cpus.is_empty(), "a running process has a CPU");
    let control_cpu = wish.control.unwrap_or(cpus[0]);
    known("control_core", &[control_cpu], cpus)?;
    let others: Vec<usize> = cpus.iter().copied().filter(|&cpu| cpu != control_cpu).collect();
    // A host without a CPU to spare gets one data core, wherever the kernel puts it.
    let scarce = cpus.len() < 3;
    let data_cpus = match wish.cores.map(|text| parse("cores", text)).transpose()? {
        None if scarce => vec![*others.first().unwrap_or(&control_cpu)],
        None => others.clone(),
        Some(Cpus::Count(0)) => return Err("cores = 0: at least one data core is needed".to_string()),
        Some(Cpus::Count(count)) => {
            (0..count).map(|i| *others.get(i % others.len().max(1)).unwrap_or(&control_cpu)).collect()
        }
        Some(Cpus::List(list)) => list,
    };
    known("cores", &data_cpus, cpus)?;
    let background_cpus = match wish.background.map(|text| parse("background_cores", text)).transpose()? {
        None => vec![control_cpu],
        Some(Cpus::List(list)) => list,
        // Here a bare number names a CPU: the thread is one, however many CPUs it may use.
        Some(Cpus::Count(cpu)) => vec![cpu],
    };
    known("background_cores", &background_cpus, cpus)?;
    let mut distinct: Vec<usize> = data_cpus.iter().copied().chain([control_cpu]).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let shared = distinct.len() < data_cpus.len() + 1;
    if shared && wish.pin == Some(true) {
        return Err(format!("pin = true: {} data cores and the control core do not have a CPU each", data_cpus.len()));
    }
    let small_host = scarce || shared;
    let pin = wish.pin.unwrap_or(!small_host);
    Ok(Threads { data_cpus, control_cpu, background_cpus, pin, small_host, busy_poll_us: wish.busy_poll_us })
}

enum Cpus {
    Count(usize),
    List(Vec<usize>),
}

/// A bare number is a count; ranges and commas make a list of CPUs.
fn parse(name: &str, text: &str) -> Result<Cpus, String> {
    let refused = || format!("{name} = {text}: a count is needed, or CPUs such as 1-3,6");
    if let Ok(count) = text.parse() {
        return Ok(Cpus::Count(count));
    }
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| refused())?;
        let last: usize = last.trim().parse().map_err(|_| refused())?;
        // No host has more CPUs than that, and a mistyped range must not fill memory.
        if last < first || last > 4095 {
            return Err(refused());
        }
        list.extend(first..=last);
    }
    Ok(Cpus::List(list))
}

fn known(name: &str, asked: &[usize], cpus: &[usize]) -> Result<(), String> {
    match asked.iter().find(|cpu| !cpus.contains(cpu)) {
        Some(cpu) => Err(format!("{name}: this process may not use CPU {cpu}; it may use {cpus:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(cpus: usize) -> Host {
        Host { cpus: (0..cpus).collect(), memory_bytes: 1 << 34, files_max: 1 << 20 }
    }

    #[test]
    fn a_big_host_gives_every_thread_a_cpu_of_its_own() {
        let threads = distribute(&Wish::default(), &host(8)).expect("valid");
        assert_eq!(threads.control_cpu, 0);
        assert_eq!(threads.data_cpus, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(threads.background_cpus, [0]);
        assert!(threads.pin && !threads.small_host);
        assert_eq!((threads.io_workers_max(), threads.patience()), (None, 1));
    }

    #[test]
    fn a_small_host_gets_one_data_core_and_no_pinning() {
        for cpus in [1, 2] {
            let threads = distribute(&Wish::default(), &host(cpus)).expect("valid");
            assert_eq!(threads.data_cpus.len(), 1);
            assert!(!threads.pin && threads.small_host);
            assert_eq!((threads.io_workers_max(), threads.patience()), (Some(2), 5));
        }
    }

    #[test]
    fn cores_are_a_count_or_a_list() {
        let cores = |text| distribute(&Wish { cores: Some(text), ..Wish::default() }, &host(8));
        assert_eq!(cores("3").expect("valid").data_cpus, [1, 2, 3]);
        assert_eq!(cores("2-3,6").expect("valid").data_cpus, [2, 3, 6]);
        assert!(cores("0").is_err());
        assert!(cores("3-1").is_err());
        assert!(cores("0-99999999999").is_err());
        assert_eq!(
            cores("9-9").expect_err("refused"),
            "cores: this process may not use CPU 9; it may use [0, 1, 2, 3, 4, 5, 6, 7]"
        );
    }

    #[test]
    fn more_data_cores_than_cpus_share_them_unpinned() {
        let wish = Wish { cores: Some("4"), ..Wish::default() };
        let threads = distribute(&wish, &host(2)).expect("valid");
        assert_eq!(threads.data_cpus, [1, 1, 1, 1]);
        assert!(!threads.pin);
        let refused = distribute(&Wish { pin: Some(true), ..wish }, &host(2)).expect_err("a contradiction");
        assert!(refused.starts_with("pin = true: 4 data cores"), "{refused}");
    }

    #[test]
    fn a_two_cpu_host_can_be_dedicated_by_hand() {
        let wish = Wish { pin: Some(true), ..Wish::default() };
        let threads = distribute(&wish, &host(2)).expect("valid");
        assert_eq!((threads.control_cpu, threads.data_cpus.as_slice(), threads.pin), (0, &[1][..], true));
    }
}
