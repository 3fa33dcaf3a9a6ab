/* Who has the driver open: one file per process in `nvidia-sessions-of-<state file>/`, named by pid and locked while open.
 *
 * The lock, not the file, is the proof: the kernel drops it when the process dies, however it dies. The folder's name
 * begins as the driver's device files do, so that a search for open ones in /proc/self/fd finds the session. */
#include "state.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int session = -1;
static char session_path[PATH_MAX];

void session_open(const char *state_path) {
    const char *slash = strrchr(state_path, '/');
    const char *name = slash ? slash + 1 : state_path;
    int folder = (int)(name - state_path);
    snprintf(session_path, sizeof session_path, "%.*snvidia-sessions-of-%s", folder, state_path, name);
    mkdir(session_path, 0777);
    snprintf(session_path, sizeof session_path, "%.*snvidia-sessions-of-%s/%d", folder, state_path, name, (int)getpid());
    session = open(session_path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (session < 0 || flock(session, LOCK_EX | LOCK_NB) != 0) perror("fakenvml: session file");
}

void session_close(void) {
    if (session < 0) return;
    unlink(session_path);
    close(session);
    session = -1;
}
