//! Gathering the reports of all cores for `/metrics`.

use std::collections::BTreeMap;

use crate::control::{Action, Actions};
use crate::ids::{CoreId, MonoMicros};
use crate::metrics::CoreReport;
use crate::shard::message::{Message, Peer};

/// Names one request of the HTTP thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HttpTicket(pub u64);

/// What came together.
#[derive(Clone, Debug, Default)]
pub struct Scraped {
    /// The reports, by core.
    pub cores: BTreeMap<CoreId, CoreReport>,
    /// Cores that did not answer in time: stuck, or ending.
    pub missing: Vec<CoreId>,
}

/// One round of reports at a time; whoever asks meanwhile gets the same.
#[derive(Debug)]
pub struct Scrape {
    cores: u16,
    askers: Vec<HttpTicket>,
    reports: BTreeMap<CoreId, CoreReport>,
    /// When the round ends with what is there.
    deadline: Option<MonoMicros>,
}

impl Scrape {
    /// For so many data cores.
    pub fn new(cores: u16) -> Scrape {
        Scrape { cores, askers: Vec::new(), reports: BTreeMap::new(), deadline: None }
    }

    /// Somebody wants reports.
    pub fn ask(&mut self, ticket: HttpTicket, now: MonoMicros, out: &mut Actions) {
        self.askers.push(ticket);
        if self.deadline.is_none() {
            self.deadline = Some(now.plus_millis(SCRAPE_MS_MAX));
            out.extend(
                (0..self.cores).map(|core| Action::Mail { to: Peer::Core(CoreId(core)), message: Message::Scrape }),
            );
        }
    }

    /// A core's report. One that comes too late is dropped.
    pub fn on_report(&mut self, core: CoreId, report: CoreReport) -> Option<(Vec<HttpTicket>, Scraped)> {
        self.deadline?;
        self.reports.insert(core, report);
        (self.reports.len() == usize::from(self.cores)).then(|| self.finish())
    }

    /// Ends a round that has taken too long.
    pub fn on_deadline(&mut self, now: MonoMicros) -> Option<(Vec<HttpTicket>, Scraped)> {
        self.deadline.is_some_and(|at| at <= now).then(|| self.finish())
    }

    /// When [`Scrape::on_deadline`] is wanted.
    pub fn deadline(&self) -> Option<MonoMicros> {
        self.deadline
    }

    fn finish(&mut self) -> (Vec<HttpTicket>, Scraped) {
        self.deadline = None;
        let cores = std::mem::take(&mut self.reports);
        let missing = (0..self.cores).map(CoreId).filter(|core| !cores.contains_key(core)).collect();
        (std::mem::take(&mut self.askers), Scraped { cores, missing })
    }
}

/// A core that takes longer has a problem that the metrics should show.
const SCRAPE_MS_MAX: u64 = 1_000;
