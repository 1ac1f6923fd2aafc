use super::Plan;
use crate::Outcome;
use crate::entrant::Entrant;
use crate::request::Request;

fn request(suite: &str) -> Request {
    Request {
        directory: ".".into(),
        suite: suite.to_owned(),
        out: Some(std::env::temp_dir().join("thrufs-bench-not-there")),
        ..Request::default()
    }
}

fn plan(change: impl FnOnce(&mut Request)) -> Outcome<Plan> {
    let mut request = request("quick");
    change(&mut request);
    Plan::of(&request)
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.entrants.iter().map(Entrant::name).collect()
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn a_directory_is_measured_in_every_mode_as_it_is_mounted_by_default() {
    let plan = plan(|_| ()).unwrap();
    assert_eq!(names(&plan), ["native", "dev", "ring", "dev+pt", "ring+pt"]);
    assert_eq!((plan.rounds, plan.seconds), (None, Some(120)));
    assert!(plan.lowers.is_empty());
    assert!(plan.directory.is_absolute());
    assert!(plan.place().starts_with(&plan.directory));
}

#[test]
fn caches_multiply_modes() {
    let plan = plan(|request| {
        request.modes = words(&["dev", "ring+pt"]);
        request.cache = words(&["never", "always"]);
    });
    let expected = [
        "native",
        "dev:never",
        "dev:always",
        "ring+pt:never",
        "ring+pt:always",
    ];
    assert_eq!(names(&plan.unwrap()), expected);
}

#[test]
fn comparisons_have_their_rows_rounds_and_file_systems_unless_others_are_asked_for() {
    let plan = Plan::of(&request("transports")).unwrap();
    assert_eq!((plan.rounds, plan.seconds), (Some(5), None));
    assert_eq!(plan.lowers.len(), 2);
    assert!(plan.turns_ring_on);
    assert!(names(&plan).contains(&"floor-dev"));
    let mut other = request("transports");
    other.rows = Some("mkdir".to_owned());
    other.directory_given = true;
    let plan = Plan::of(&other).unwrap();
    assert_eq!((plan.rows, plan.lowers.len()), (words(&["mkdir"]), 0));
}

#[test]
fn several_processes_open_and_close_unless_somebody_says_how_many() {
    let tasks = |plan: &Plan, jobs: u32| -> Vec<&str> {
        let tasks = plan.tasks().unwrap();
        let tasks = tasks.iter().filter(|task| task.jobs == jobs);
        tasks.map(|task| task.row.name).collect()
    };
    let plan = Plan::of(&request("passthrough")).unwrap();
    assert!(tasks(&plan, 1).contains(&"read-4k"));
    assert_eq!(tasks(&plan, 2), ["open-close", "open-close-write"]);
    let mut other = request("passthrough");
    other.rows = Some("create-write-4k".to_owned());
    other.jobs = vec![2];
    assert_eq!(tasks(&Plan::of(&other).unwrap(), 2), ["create-write-4k"]);
}

#[test]
fn a_plan_goes_to_another_process_and_back() {
    let plan = Plan::of(&request("passthrough")).unwrap();
    let text = plan.text().unwrap();
    assert_eq!(Plan::parse(&text).unwrap().text().unwrap(), text);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let none = |change: fn(&mut Request)| plan(change).map(drop).unwrap_err();
    for (why, error) in [
        ("no suite", none(|r| r.suite = "none".into())),
        ("no row", none(|r| r.rows = Some("none".into()))),
        ("there are dev", none(|r| r.modes = words(&["uring"]))),
        ("nobody", none(|r| r.modes = words(&["none"]))),
        (
            "two contestants",
            none(|r| r.modes = words(&["dev", "dev"])),
        ),
        (
            "neither",
            none(|r| {
                r.lowers = words(&["tmpfs"]);
                r.directory_given = true;
            }),
        ),
        (
            "made of letters",
            none(|r| r.against = vec![("a/b".into(), "/".into())]),
        ),
        (
            "two contestants",
            none(|r| r.against = vec![("native".into(), "/".into())]),
        ),
        ("overwritten", none(|r| r.out = Some("/".into()))),
        (
            "says who",
            none(|r| {
                r.suite = "usual".into();
                r.modes = words(&["dev"]);
            }),
        ),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    assert!(plan(|r| r.directory = "/not/there".into()).is_err());
}
