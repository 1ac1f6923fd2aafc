//! `dist/policies/workspace.toml`, and the sandbox of docs/workspaces.md.

use crate::ground::prelude::*;

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
    // With the rule in its comments.
    let code = |line: &'static str| line.strip_prefix('#').filter(|it| !it.starts_with(' '));
    let lines = POLICY.lines().map(|line| code(line).unwrap_or(line));
    let uncommented = lines.collect::<Vec<_>>().join("\n");
    assert!(uncommented.contains("\nname = \"attempts\"\n"));
    fails(&project.check(&uncommented), 0, "");
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

/// A repository of an ordinary user, with a policy, a home and a copy of the command beside it.
pub struct Workspace {
    pub ground: Ground,
    program: PathBuf,
    policy: PathBuf,
    pub home: PathBuf,
}

/// Commands in the view, each with its error. That the policy holds is tried by `run_escapes::names`; which names
/// it has, above.
pub const REFUSED: &[(&str, &str)] = &[
    ("cat .env", "No such file"),
    ("cat .docker/config.json", "No such file"),
    ("ls /proc/1/root/home", "No such file"),
    ("echo x >new.pem", "Permission denied"),
    ("mv .docker other", "Read-only file system"),
    ("echo x >.git/hooks/pre-commit", "Read-only file system"),
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
        // Not all of `/`: it would fail where another test unmounts something meanwhile.
        bwrap.args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"]);
        bwrap.args(["--symlink", "usr/lib64", "/lib64", "/usr/bin/true"]);
        let why = match bwrap.uid(USER).gid(USER).output() {
            Ok(output) if output.status.success() => return Some(workspace),
            Ok(output) => stderr(&output),
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
        let listed = self.in_sandbox("ls -A; git status --porcelain");
        let shown = ".docker\n.git\n.gitignore\nfile\n";
        assert_eq!(stdout(&listed), shown, "{listed:?}");
        let beneath = format!("cat {}", self.ground.src.join(".env").display());
        let outside = format!("cat {}", self.policy.display());
        let view = format!("ls {}", self.ground.mnt.display());
        let own = [
            (beneath.as_str(), "No such file"),
            (&outside, "No such file"),
            (&view, "No such file"),
            ("umount $PWD", "must be superuser"),
            ("git config core.pager x", "could not write config file"),
        ];
        for (script, error) in own.iter().chain(REFUSED) {
            fails_with(&self.in_sandbox(script), script, error);
        }
        succeeded(&self.in_sandbox("echo new >new && git add -A && git commit -qm second"));
        let host = self.on_the_host("git status --porcelain; git ls-files; cat .env deploy.pem");
        let expected = ".gitignore\ndeploy.pem\nfile\nnew\nPASSWORD=1\nkey\n";
        assert_eq!(stdout(&host), expected, "{host:?}");
    }
}

fn fails_with(output: &Output, script: &str, error: &str) {
    let said = stderr(output);
    let is_refused = !output.status.success() && said.contains(error);
    assert!(is_refused, "{error} in {output:?} of {script}");
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
    workspace.assert_guarded();
    workspace.unmount_as_user();
}

#[test]
fn sandbox_on_a_mount_of_root_has_no_secrets() {
    let Some(workspace) = Workspace::for_bubblewrap() else {
        return;
    };
    workspace.mount_as_root();
    workspace.assert_guarded();
    workspace.unmount_as_root();
}
