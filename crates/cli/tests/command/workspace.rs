//! `dist/policies/workspace.toml`, and the sandbox of docs/workspaces.md.

use crate::ground::{self, Ground, THRUFS, fails, run, skipped, stdout, succeeded, thrufs};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const POLICY: &str = include_str!("../../../../dist/policies/workspace.toml");
pub const PAGE: &str = include_str!("../../../../docs/workspaces.md");
pub const USER: u32 = 65_534;

/// Decision, rule, and paths; those of directories end with `/`, of symbolic links with `@`.
const DECISIONS: &[(&str, &str, &str)] = &[
    (
        "hidden",
        "environment",
        ".env a/b/.env .ENV prod.env .env.local .env.example.local .env~",
    ),
    (
        "hidden",
        "keys",
        "server.pem a/SERVER.PEM tls.key config/master.key AuthKey.p8 a.p12 a.pfx a.jks \
         release.keystore a.kdbx a.ppk id_rsa a/id_ecdsa a/id_ed25519 id_ed25519_sk .ssh/config \
         .gnupg/pubring.kbx",
    ),
    (
        "hidden",
        "cloud",
        ".aws/config .azure/config .config/gcloud/properties \
         moved/application_default_credentials.json moved/credentials.db service-account.json \
         my_serviceAccount_2.json app-firebase-adminsdk-a1b2.json client_secret_1.json .boto \
         .kube/config kubeconfig prod.kubeconfig .docker/config.json .dockercfg terraform.tfstate \
         terraform.tfstate.backup prod.tfvars prod.auto.tfvars.json .terraformrc .vault-token \
         .config/gh/hosts.yml .rclone.conf .dev.vars",
    ),
    (
        "hidden",
        "logins",
        ".netrc .npmrc packages/a/.npmrc .pypirc .git-credentials .pgpass .htpasswd auth.json \
         .composer/auth.json .vault_pass ansible/.vault_pass.txt .sentryclirc",
    ),
    (
        "hidden",
        "credentials",
        ".config/git/credentials .cargo/credentials .cargo/credentials.toml credentials.json \
         config/secrets.yml .streamlit/secrets.toml",
    ),
    (
        "hidden",
        "copies",
        ".prod.env.swp #prod.env# prod.env~ #.env# #.env.local# key.pem~ KEY.PEM~ .key.pem.swo server.key.old id_rsa.bak \
         #id_ed25519# .npmrc~ ..netrc.swp .cargo/.credentials.toml.swp credentials~ config/secrets.yml.bak",
    ),
    ("hidden", "secrets", "secrets/token .secrets/token"),
    (
        "read-only",
        "git",
        ".git/ .git/hooks/ .git/hooks/pre-commit .git/config .git/config.worktree .git/commondir \
         .git/modules/ .git/modules/library/config .git/worktrees/ .git/worktrees/next/ .git/worktrees/next/commondir \
         .git/worktrees/next/modules/a/config \
         .git/remotes/ .git/remotes/origin .git/branches/origin \
         library/.git nested/.git/hooks/pre-commit",
    ),
    ("hidden", "moves", ".not-moved"),
    (
        "read-only",
        "links",
        ".git/COMMIT_EDITMSG@ nested/.git/logs/HEAD@",
    ),
    (
        "read-only",
        "hooks",
        ".husky/ .husky/pre-commit .githooks/pre-push .pre-commit-config.yaml lefthook.yml \
         .local-overcommit.yml prek.toml .lefthook-local/pre-commit/lint \
         .config/lefthook-local.yml .hg/ .hg/hgrc .jj/ .jj/repo/config.toml \
         .lefthook/ .lefthook/pre-commit/lint",
    ),
    (
        "read-only",
        "editors",
        ".vscode/ .vscode/tasks.json .vscode/launch.json .vscode/settings.json \
         .idea/runConfigurations/a.xml .helix/languages.toml app.code-workspace .devcontainer/ \
         .devcontainer/devcontainer.json .devcontainer.json .nvim.lua .dir-locals.el .gdbinit",
    ),
    (
        "read-only",
        "assistants",
        ".claude/ .claude/settings.json .mcp.json opencode.json .crush.json .kiro/ .kiro/settings/mcp.json .roo/mcp.json \
         .amazonq/ .windsurf/ .aider.conf.yml \
         .github/hooks/ .github/hooks/a.json .clinerules/hooks/ .clinerules/hooks/PreToolUse",
    ),
    (
        "read-only",
        "shells",
        ".envrc a/.envrc .envrc.local .direnv/ a/.direnv/python-3/bin/ls mise.toml .mise.local.toml .mise/ .mise/config.toml",
    ),
    ("read-only", "kept", ".docker/ .composer/"),
    (
        "passes",
        "",
        ".env.example .env.local.sample example.env environment env.ts \
         id_rsa.pub monkey site-packages/certifi/cacert.pem android/app/debug.keystore ssh/config \
         aws/config .config/nextest.toml .docker/nginx.conf config.json main.tf \
         terraform.tfvars.example \
         locales/en/auth.json docs/npmrc.md \
         src/credentials/mod.rs credentials.rs \
         internal/secrets/store.go secrets.rs \
         .git/HEAD .git/worktrees/next/index .git/config.lock .git/index .git/objects/01/23 .git/refs/heads/config \
         .gitignore .gitmodules \
         packages/a/.husky/pre-commit hooks/pre-commit \
         env.bak monkey.old key.ts i18n.key.ts server.pem.md credentials.rs.bak config/secrets.yml.enc secrets.ts \
         AGENTS.md a/mise.toml \
         node_modules/a/.vscode/settings.json .editorconfig \
         envrc \
         .cargo/config.toml .config/ .github/ .github/workflows/ci.yml package.json",
    ),
];

const KINDS: [char; 2] = ['/', '@'];

struct Project {
    place: TempDir,
    root: PathBuf,
    /// As in the table, without the final `/` or `@`.
    paths: Vec<&'static str>,
}

impl Project {
    fn with_every_path() -> Project {
        let place = TempDir::with_prefix("thrufs-workspace-").unwrap();
        let root = place.path().join("root");
        let all = || {
            DECISIONS
                .iter()
                .flat_map(|(_, _, paths)| paths.split_whitespace())
        };
        for path in all() {
            let full = root.join(path);
            if path.ends_with('/') {
                fs::create_dir_all(full).unwrap();
                continue;
            }
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            match path.strip_suffix('@') {
                Some(link) => symlink("nowhere", root.join(link)).unwrap(),
                None => fs::write(full, "").unwrap(),
            }
        }
        Project {
            root,
            place,
            paths: all().map(|path| path.trim_end_matches(KINDS)).collect(),
        }
    }

    /// What `thrufs policy check` says about each path.
    fn check(&self, policy: &str) -> Output {
        let file = self.place.path().join("policy.toml");
        fs::write(&file, policy).unwrap();
        let mut command = Command::new(THRUFS);
        command.args(["policy", "check"]).arg(file);
        run(command.args(&self.paths).current_dir(&self.root))
    }
}

#[test]
fn workspace_policy_decides_as_documented() {
    let project = Project::with_every_path();
    let output = project.check(POLICY);
    fails(&output, 0, "");
    let said = stdout(&output);
    let mut lines = said.lines();
    for (decision, rule, paths) in DECISIONS {
        for path in paths.split_whitespace() {
            let line = lines.next().unwrap();
            let answer = line.strip_prefix(path.trim_end_matches(KINDS)).unwrap();
            let is_expected = match *decision {
                "passes" => [": passthrough by default", ": allowed"].contains(&answer),
                decision => {
                    answer.starts_with(&format!(": {decision} "))
                        && answer.contains(&format!(" `{rule}` "))
                }
            };
            assert!(is_expected, "{decision} by `{rule}`: {line}");
        }
    }
    assert_eq!(lines.next(), None);
    let (_, first) = said.lines().next().unwrap().split_once(": ").unwrap();
    assert!(PAGE.contains(&format!("/.env: {first}\n")), "{first}");
}

#[test]
fn workspace_policy_needs_each_of_its_lines() {
    let project = Project::with_every_path();
    let whole = stdout(&project.check(POLICY));
    let lines: Vec<&str> = POLICY.lines().collect();
    let is_condition = |line: &str| {
        let line = line.trim_start();
        ["\"", "ignore-case", "type"]
            .iter()
            .any(|it| line.starts_with(it))
    };
    let mut tried = 0;
    for (index, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_condition(line))
    {
        // Emptied, not removed: answers have the numbers of lines.
        let mut fewer = lines.clone();
        fewer[index] = "";
        let output = project.check(&fewer.join("\n"));
        fails(&output, 0, "");
        assert_ne!(stdout(&output), whole, "no path needs {line}");
        tried += 1;
    }
    assert!(tried > 60, "{tried} lines");
}

#[test]
fn commented_rule_of_the_workspace_policy_is_valid() {
    let place = TempDir::with_prefix("thrufs-workspace-").unwrap();
    let file = place.path().join("policy.toml");
    let uncommented = |line: &'static str| match line.strip_prefix('#') {
        Some(code) if !code.is_empty() && !code.starts_with(' ') => code,
        _ => line,
    };
    let lines: Vec<&str> = POLICY.lines().map(uncommented).collect();
    fs::write(&file, lines.join("\n")).unwrap();
    let output = thrufs!("policy", "check", &file);
    succeeded(&output);
    let rules = POLICY.lines().filter(|line| *line == "[[rule]]").count() + 1;
    let said = stdout(&output);
    assert!(
        said.contains(&format!(": {rules} rules, no fault")),
        "{said}"
    );
}

/// A repository of an ordinary user, with a policy, a home and a copy of the command beside it.
pub struct Workspace {
    pub ground: Ground,
    program: PathBuf,
    policy: PathBuf,
    pub home: PathBuf,
}

/// Commands in the view, each with its error.
pub const REFUSED: &[(&str, &str)] = &[
    ("cat .env", "No such file"),
    ("cat deploy.pem", "No such file"),
    ("cat .docker/config.json", "No such file"),
    ("ls /proc/1/root/home", "No such file"),
    ("echo x >.env", "Permission denied"),
    ("ln file .env", "Permission denied"),
    ("ln -s file .env", "Permission denied"),
    ("mv file .env", "Permission denied"),
    ("mkdir .env", "Permission denied"),
    ("echo x >new.pem", "Permission denied"),
    ("mv .docker other", "Read-only file system"),
    ("echo x >.git/hooks/pre-commit", "Read-only file system"),
    ("mv file .git/hooks/pre-commit", "Read-only file system"),
    ("ln file .git/hooks/pre-commit", "Read-only file system"),
    ("mv .git other", "Read-only file system"),
    ("mv .git/hooks other", "Read-only file system"),
    ("rm -r .git/hooks", "Read-only file system"),
    ("echo .. >.git/commondir", "Read-only file system"),
    ("mkdir .vscode", "Read-only file system"),
];

impl Workspace {
    /// `None`, and a report, where mounts are not possible.
    pub fn new() -> Option<Workspace> {
        let ground = Ground::new()?;
        let workspace = Workspace {
            program: ground::copied_program(ground.path()),
            policy: ground.path().join("workspace.toml"),
            home: ground.path().join("home"),
            ground,
        };
        fs::write(&workspace.policy, POLICY).unwrap();
        fs::create_dir(&workspace.home).unwrap();
        let [src, mnt] = [&workspace.ground.src, &workspace.ground.mnt];
        for path in [src, mnt, &workspace.home, &src.join("file")] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        succeeded(&workspace.on_the_host(
            "umask 022
             git init -q -b main
             git config user.name Ann
             git config user.email ann@example.com
             echo PASSWORD=1 >.env
             echo key >deploy.pem
             mkdir .docker
             echo '{}' >.docker/config.json
             printf '.env\\n.docker\\n' >.gitignore
             git add .
             git commit -qm first
             git update-index --skip-worktree deploy.pem",
        ));
        Some(workspace)
    }

    /// The same where bubblewrap does not work.
    fn for_bubblewrap() -> Option<Workspace> {
        let workspace = Workspace::new()?;
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--ro-bind", "/", "/", "true"]);
        let why = match bwrap.uid(USER).gid(USER).output() {
            Ok(output) if output.status.success() => return Some(workspace),
            Ok(output) => ground::stderr(&output),
            Err(error) => error.to_string(),
        };
        skipped(&format!("bwrap (package bubblewrap): {why}"));
        None
    }

    /// Mounts the view as the user.
    pub fn mount_as_user(&self) {
        let mut mount = self.user(&self.program);
        mount.args(["mount", "-o"]);
        mount.arg(format!("policy={}", self.policy.display()));
        succeeded(&run(mount.args([&self.ground.src, &self.ground.mnt])));
    }

    pub fn unmount_as_user(&self) {
        ground::unmounts(|| {
            let mut unmount = self.user(&self.program);
            run(unmount.arg("unmount").arg(&self.ground.mnt))
        });
        self.ground.wait_gone();
    }

    /// Mounts the view as root, for the user.
    pub fn mount_as_root(&self) {
        let options = format!("allow_other,policy={}", self.policy.display());
        succeeded(&self.ground.mount(&["-o", &options]));
    }

    pub fn unmount_as_root(&self) {
        ground::unmount_by_command(&self.ground.mnt);
        self.ground.wait_gone();
    }

    fn user(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.uid(USER).gid(USER).current_dir("/");
        command.env("HOME", &self.home).env("LANG", "C.UTF-8");
        command
    }

    /// Runs a script in the tree beneath.
    pub fn on_the_host(&self, script: &str) -> Output {
        let mut shell = self.user(Path::new("sh"));
        shell.args(["-ec", script]);
        run(shell.current_dir(&self.ground.src))
    }

    /// Runs a script by the function of the page.
    fn in_sandbox(&self, script: &str) -> Output {
        let (_, function) = PAGE.split_once("```sh\n").unwrap();
        let (function, _) = function.split_once("```").unwrap();
        let mut shell = self.user(Path::new("sh"));
        shell.args(["-c", &format!("{function}\nworkspace \"$@\"")]);
        shell.arg("sh").args([&self.ground.src, &self.ground.mnt]);
        run(shell.args(["--", "sh", "-ec", script]))
    }

    fn assert_guarded(&self) {
        let listed = self.in_sandbox("ls -A");
        assert_eq!(
            stdout(&listed),
            ".docker\n.git\n.gitignore\nfile\n",
            "{listed:?}"
        );
        let outside = self.policy.to_str().unwrap();
        let beneath = self.ground.src.join(".env");
        let beneath = beneath.to_str().unwrap();
        let view = self.ground.mnt.to_str().unwrap();
        let own: [(&str, &str); 6] = [
            (&format!("cat {beneath}"), "No such file"),
            (&format!("cat {outside}"), "No such file"),
            (&format!("ls {view}"), "No such file"),
            ("umount $PWD", "must be superuser"),
            ("git config core.pager x", "could not write config file"),
            ("git init -q nested", "Read-only file system"),
        ];
        for (script, error) in own.iter().chain(REFUSED) {
            let output = self.in_sandbox(script);
            let said = ground::stderr(&output);
            assert!(!output.status.success(), "{script}: {output:?}");
            assert!(said.contains(error), "{error} in {said} of {script}");
        }
    }

    fn assert_git_works(&self) {
        let status = self.in_sandbox("git status --porcelain");
        succeeded(&status);
        assert_eq!(stdout(&status), "", "skip-worktree");
        succeeded(&self.in_sandbox(
            "echo new >new
             git add -A
             git commit -qm second
             git checkout -qb other
             echo more >>new
             git commit -qam third
             git checkout -q main
             git merge -q other
             git gc -q
             git fsck --no-progress",
        ));
        let host = self.on_the_host("git status --porcelain; git log --format=%s; git ls-files");
        succeeded(&host);
        assert_eq!(
            stdout(&host),
            "third\nsecond\nfirst\n.gitignore\ndeploy.pem\nfile\nnew\n"
        );
        let secret = self.on_the_host("cat .env deploy.pem .docker/config.json");
        assert_eq!(stdout(&secret), "PASSWORD=1\nkey\n{}\n");
    }

    /// A pattern that matches names at any depth follows a directory that is renamed.
    fn assert_guarded_when_a_directory_is_moved(&self) {
        succeeded(&self.in_sandbox("mkdir directory && echo x >directory/a"));
        succeeded(&self.on_the_host("mkdir .aws && echo key >.aws/key && cp .env directory/"));
        succeeded(&self.in_sandbox("mv directory moved"));
        let listed = self.in_sandbox("ls -A moved");
        assert_eq!(stdout(&listed), "a\n");
        fails(&self.in_sandbox("cat .aws/key"), 1, "No such file");
    }

    fn assert_holds(&self) {
        self.assert_guarded();
        self.assert_git_works();
        self.assert_guarded_when_a_directory_is_moved();
    }
}

#[test]
fn sandbox_of_an_ordinary_user_has_no_secrets() {
    let Some(workspace) = Workspace::for_bubblewrap() else {
        return;
    };
    let test = "workspace::sandbox_of_an_ordinary_user_has_no_secrets";
    if !ground::users_can_mount(workspace.ground.path(), test) {
        return;
    }
    workspace.mount_as_user();
    workspace.assert_holds();
    workspace.unmount_as_user();
}

#[test]
fn sandbox_on_a_mount_of_root_has_no_secrets() {
    let Some(workspace) = Workspace::for_bubblewrap() else {
        return;
    };
    workspace.mount_as_root();
    workspace.assert_holds();
    workspace.unmount_as_root();
}
