/*
 * The client of counts.sh: one operation, many times, and no system call on the mount besides it.
 *
 *     client SWITCH OPERATION TURNS PATH
 *
 * The operation is done once or twice to warm the kernel's caches; then 1 is written to SWITCH, the
 * turns are run, and after a pause for what happens in the background 0 is written. `open-each` and
 * `open-each-write` open PATH-0, PATH-1 and so on, and close them all at the end; with `-keep` behind
 * the operation, they stay open until a signal comes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char buffer[4096] __attribute__((aligned(4096)));
static int file = -1;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void numbered(char *name, size_t size, const char *path, int turn)
{
	if (snprintf(name, size, "%s-%d", path, turn) >= (int)size)
		exit(1);
}

static void turn_of(const char *operation, const char *path, int turn)
{
	char name[4096];
	struct stat seen;
	int opened;

	if (!strcmp(operation, "stat")) {
		if (lstat(path, &seen) != 0)
			die("lstat");
	} else if (!strcmp(operation, "missing")) {
		numbered(name, sizeof(name), path, turn);
		if (lstat(name, &seen) == 0 || errno != ENOENT)
			die("a name that should be missing");
	} else if (!strcmp(operation, "readlink")) {
		if (readlink(path, name, sizeof(name)) <= 0)
			die("readlink");
	} else if (!strcmp(operation, "access")) {
		if (faccessat(AT_FDCWD, path, R_OK, 0) != 0)
			die("access");
	} else if (!strcmp(operation, "open")) {
		opened = open(path, O_RDONLY);
		if (opened < 0 || close(opened) != 0)
			die("open and close");
	} else if (!strcmp(operation, "open-write")) {
		opened = open(path, O_RDWR);
		if (opened < 0 || close(opened) != 0)
			die("open and close");
	} else if (!strncmp(operation, "open-each", 9)) {
		numbered(name, sizeof(name), path, turn);
		if (open(name, strstr(operation, "-write") ? O_RDWR : O_RDONLY) < 0)
			die(name);
	} else if (!strcmp(operation, "create")) {
		numbered(name, sizeof(name), path, turn);
		opened = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		if (opened < 0 || close(opened) != 0)
			die("create and close");
	} else if (!strcmp(operation, "unlink")) {
		numbered(name, sizeof(name), path, turn);
		if (unlink(name) != 0)
			die("unlink");
	} else if (!strcmp(operation, "write")) {
		if (write(file, buffer, sizeof(buffer)) != (ssize_t)sizeof(buffer))
			die("write");
	} else if (!strcmp(operation, "read") || !strcmp(operation, "direct-read")) {
		off_t at = (off_t)(turn < 0 ? 0 : turn % 1024) * sizeof(buffer);

		if (pread(file, buffer, sizeof(buffer), at) != (ssize_t)sizeof(buffer))
			die("read");
	} else {
		fprintf(stderr, "no such operation: %s\n", operation);
		exit(2);
	}
}

static void flip(int to, const char *value)
{
	if (write(to, value, 1) != 1)
		die("the switch");
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	const char *operation = argv[2], *path = argv[4];
	int turns = atoi(argv[3]), to = open(argv[1], O_WRONLY);

	if (to < 0)
		die(argv[1]);
	if (!strcmp(operation, "write"))
		file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	else if (!strcmp(operation, "direct-read"))
		file = open(path, O_RDONLY | O_DIRECT);
	else if (!strcmp(operation, "read"))
		file = open(path, O_RDONLY);
	else
		file = 0;
	if (file < 0)
		die(path);

	/* What changes something is not rehearsed; its directory is looked at instead. */
	if (!strcmp(operation, "read")) {
		for (int turn = 0; turn < 1024; turn++)
			turn_of(operation, path, turn);
	} else if (!strcmp(operation, "unlink")) {
		for (int turn = 0; turn < turns; turn++) {
			char name[4096];
			struct stat seen;

			numbered(name, sizeof(name), path, turn);
			if (lstat(name, &seen) != 0)
				die(name);
		}
	} else if (strcmp(operation, "write") && strcmp(operation, "create") &&
		   strncmp(operation, "open-each", 9)) {
		turn_of(operation, path, -1);
		turn_of(operation, path, -2);
	}
	usleep(100000);
	flip(to, "1");
	for (int turn = 0; turn < turns; turn++)
		turn_of(operation, path, turn);
	usleep(100000);
	flip(to, "0");
	if (strstr(operation, "-keep"))
		pause();
	return 0;
}
