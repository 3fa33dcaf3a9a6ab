/* Who has the driver open: one file per process in `<state file>.sessions/`, named by pid and locked while it lives.
 *
 * The lock, not the file, is the proof: the kernel drops it when the process dies, however it dies. */
#include "state.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int session = -1;
static char session_path[PATH_MAX];

void session_open(const char *state_path) {
    snprintf(session_path, sizeof session_path, "%s.sessions", state_path);
    mkdir(session_path, 0777);
    snprintf(session_path, sizeof session_path, "%s.sessions/%d", state_path, (int)getpid());
    session = open(session_path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (session < 0 || flock(session, LOCK_EX | LOCK_NB) != 0) perror("fakenvml: session file");
}

void session_close(void) {
    if (session < 0) return;
    unlink(session_path);
    close(session);
    session = -1;
}
