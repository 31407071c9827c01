/*
 * A program with fewer rights: not dumpable, without capabilities, with the system calls of a
 * container, or with a root that has no /proc. Then all that takes descriptors, memory and events.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include "check.h"
#include "loopback.h"

static char memory[8192];

/* The process, and all that it starts, has no capability. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	for (int i = 0; i <= CAP_LAST_CAP; i++)
		prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	CHECK(!syscall(SYS_capset, &header, none));
}

/*
 * System calls that Docker's default profile refuses to a container without capabilities
 * (github.com/moby/profiles, seccomp/default.json).
 */
static const unsigned refused[] = {
	SYS_acct,	   SYS_add_key,	      SYS_bpf,		   SYS_clock_adjtime,
	SYS_clock_settime, SYS_delete_module, SYS_fanotify_init,   SYS_finit_module,
	SYS_fsconfig,	   SYS_fsmount,	      SYS_fsopen,	   SYS_fspick,
	SYS_get_mempolicy, SYS_init_module,   SYS_ioperm,	   SYS_iopl,
	SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_kcmp,
	SYS_kexec_file_load, SYS_kexec_load,  SYS_keyctl,	   SYS_mbind,
	SYS_migrate_pages, SYS_mount,	      SYS_move_mount,	   SYS_move_pages,
	SYS_open_by_handle_at, SYS_open_tree, SYS_perf_event_open, SYS_pivot_root,
	SYS_quotactl,	   SYS_reboot,	      SYS_request_key,	   SYS_set_mempolicy,
	SYS_setdomainname, SYS_sethostname,   SYS_setns,	   SYS_settimeofday,
	SYS_swapoff,	   SYS_swapon,	      SYS_syslog,	   SYS_umount2,
	SYS_unshare,	   SYS_userfaultfd,   SYS_vhangup,
};

#define REFUSED (sizeof refused / sizeof *refused)
#define NAMESPACES 0x7e020000
#define LAST_KNOWN 450

static void filter_calls(void)
{
	struct sock_filter code[2 * REFUSED + 20];
	int at = 0;
#define ADD(...) code[at++] = (struct sock_filter)__VA_ARGS__
	ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (size_t i = 0; i < REFUSED; i++) {
		ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], 0, 1));
		ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
	}
	/* The C library falls back to clone. */
	ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0));
	ADD(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_KNOWN, 0, 1));
	ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
	ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3));
	ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])));
	ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1));
	ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
	ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	struct sock_fprog program = { .len = at, .filter = code };
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

#define PROCMAP_QUERY_NUMBER 0xc0686611

/* Linux before 6.11 does not describe single mappings. */
static void hide_queries(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROCMAP_QUERY_NUMBER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	int maps = open("/proc/self/maps", O_RDONLY);
	CHECK(maps >= 0 && ioctl(maps, PROCMAP_QUERY_NUMBER, memory) < 0 && errno == ENOTTY);
	close(maps);
}

static int readable(int fd)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	return poll(&waited, 1, 10000) == 1;
}

/* Each between pages without rights: a mapping of its own, among thousands. */
static void register_many(struct ibv_pd *pd)
{
	const size_t page = 4096, count = 2000;
	char *base = mmap(NULL, 2 * count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(base != MAP_FAILED);
	for (size_t i = 0; i < count; i++) {
		char *one = base + 2 * i * page;
		CHECK(!mprotect(one, page, PROT_READ | PROT_WRITE));
		one[100] = 'z';
		struct ibv_mr *mr = ibv_reg_mr(pd, one, page, ACCESS);
		CHECK(mr && one[100] == 'z');
		CHECK(i % 2 || !ibv_dereg_mr(mr));
	}
	CHECK(!ibv_reg_mr(pd, base, 3 * page, ACCESS) && errno == EFAULT);
}

static void use_queues(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = channel ? ibv_create_cq(context, 16, NULL, channel, 0) : NULL;
	CHECK(pd && cq && !ibv_req_notify_cq(cq, 0));
	struct ibv_qp *qp = loopback(pd, cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS);
	CHECK(qp && mr);
	register_many(pd);
	memset(memory, 'x', 100);
	enum ibv_wc_status status = write_to(qp, mr, 100, memory + 4096, mr);
	struct ibv_cq *of;
	void *unused;
	CHECK(readable(channel->fd) && !ibv_get_cq_event(channel, &of, &unused) && of == cq);
	ibv_ack_cq_events(cq, 1);
	printf("written: %s, %d wrong\n", ibv_wc_status_str(status),
	       memcmp(memory, memory + 4096, 100) != 0);
}

/* A child has copies of registered memory, for which it needs its own /proc/self/maps. */
static void use_child(void)
{
	int status = -1;
	pid_t child = fork();
	if (child == 0) {
		memory[0] = 'y';
		_exit(7);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && memory[0] == 'x');
}

static void change_root(void)
{
	if (chroot("/usr") == 0) {
		CHECK(!chdir("/") && access("/proc", F_OK));
		return;
	}
	CHECK(errno == EPERM);
	printf("not root\n");
	exit(0);
}

static void register_none(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd && !ibv_reg_mr(pd, memory, sizeof memory, ACCESS));
	printf("registered: %s\n", strerrorname_np(errno));
	exit(0);
}

static void use_ids(const char *address)
{
	struct sockaddr_in peer = { .sin_family = AF_INET };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	inet_pton(AF_INET, address, &peer.sin_addr);
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 2000));
	CHECK(readable(channel->fd) && !rdma_get_cm_event(channel, &event));
	printf("event: %s\n", rdma_event_str(event->event));
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (!strcmp(argv[1], "undumpable")) {
		CHECK(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
		drop_capabilities();
	}
	if (!strcmp(argv[1], "container")) {
		CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		drop_capabilities();
		filter_calls();
		CHECK(unshare(CLONE_NEWUSER) && errno == EPERM);
	}
	if (!strcmp(argv[1], "old kernel"))
		hide_queries();
	if (!strncmp(argv[1], "root", 4))
		change_root();
	/* The library's own, too. */
	if (!strcmp(argv[1], "root without descriptors"))
		syscall(SYS_close_range, 3, ~0u, 0);
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	if (!strcmp(argv[1], "root without descriptors"))
		register_none(context);
	use_queues(context);
	use_child();
	use_ids(argv[2]);
	return 0;
}
