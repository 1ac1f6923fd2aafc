use super::Plan;
use crate::Outcome;
use crate::request::Request;
use crate::setup::TargetSetup;

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
    plan.setups.iter().map(TargetSetup::name).collect()
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
fn a_plan_goes_to_another_process_and_back() {
    let plan = plan(|_| ()).unwrap();
    let text = plan.text().unwrap();
    assert_eq!(Plan::parse(&text).unwrap().text().unwrap(), text);
}

#[test]
fn contradictory_requests_are_refused() {
    let none = |change: fn(&mut Request)| plan(change).map(drop).unwrap_err();
    for (why, error) in [
        ("no suite", none(|r| r.suite = "none".into())),
        ("no row", none(|r| r.rows = Some("none".into()))),
        ("there are dev", none(|r| r.modes = words(&["uring"]))),
        ("no target", none(|r| r.modes = words(&["none"]))),
        ("two targets", none(|r| r.modes = words(&["dev", "dev"]))),
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
            "two targets",
            none(|r| r.against = vec![("native".into(), "/".into())]),
        ),
        ("overwritten", none(|r| r.out = Some("/".into()))),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    assert!(plan(|r| r.directory = "/not/there".into()).is_err());
}
