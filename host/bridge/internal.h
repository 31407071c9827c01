/*
 * Declarations that the files of the library share. Layouts of the engine: build/bridge/abi.h
 * (header.mjs).
 */
#ifndef VERBENA_INTERNAL_H
#define VERBENA_INTERNAL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include "abi.h"
#include "places.h"

#define VB_EXPORT __attribute__((visibility("default")))
/* Descriptors of ours lie above those that programs count on. */
#define VB_FD_FIRST 400

/* ---- sidecar.c: the process that has the device */
struct vb {
	/* The process that started the sidecar; a child of fork has none yet. */
	pid_t owner;
	/* Grows with each sidecar of this process image: what belongs to an older one is dead. */
	unsigned generation;
	int socket;
	int memory;
	int wake;
	/* Descriptors go to the sidecar over it. */
	int pass;
	/* The file of a device with a name, or -1. */
	int shared_file;
	uint64_t shared;
	char *base;
	size_t bytes;
	uint64_t hello[HELLO_WORDS];
	/* The other side needs a processor of few. */
	bool few_processors;
	/* The address space behind the memory is reserved, up to 4 GiB and a guard. */
	bool has_guard;
};
extern struct vb vb;

/* Starts the sidecar once. 0 or an errno. */
int vb_start(void);
/* One control verb: 0 or an errno, which is in `errno` as well. */
int vb_call(uint32_t operation, const uint64_t *arguments, int count, uint64_t *results,
	    int result_count);
#define VB_CALL(operation, results, result_count, ...)                                     \
	({                                                                                 \
		const uint64_t vb_arguments[] = { __VA_ARGS__ };                           \
		vb_call(operation, vb_arguments, sizeof vb_arguments / 8, results,         \
			result_count);                                                     \
	})
/* Moves a descriptor above those that the program counts on. */
int vb_lift(int fd);
/* Sends a descriptor over a socket of AF_UNIX. 0, or -1 with errno. */
int vb_pass_descriptor(int socket, int fd);
/* A line for the user on standard error. */
void vb_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* ENOENT and so on. */
const char *vb_error_name(int error);
bool vb_debugging(void);
bool vb_sidecar_lives(void);
/* In a child of fork: the device is its parent's. */
void vb_sidecar_leave(void);
int vb_pipe(int ends[2]);
/* An object of the sidecar's that writes its events into a pipe: what to read, and its number. */
int vb_make_channel(uint32_t operation, int *fd, uint64_t *handle);
/* Reads one event of the sidecar's from such a pipe. 0, or -1 with errno. */
int vb_read_event(int fd, void *event, size_t size);

/* ---- fork.c, clone.c */
/* Makes a child by one call of the kernel or of the C library. */
typedef pid_t vb_make_child(const long *words);
/* The same, and the child has copies of registered memory and no device. */
pid_t vb_fork_by(vb_make_child *make, const long *words);
/* A system call as the C library makes it: 0 or more, or -1 with errno. Not fork's work. */
long vb_syscall(long number, ...);

/* ---- calls of the kernel: UCX replaces those of the C library, and its mremap has no target */
static inline void *vb_map(void *at, size_t length, int rights, int flags, int fd, off_t offset)
{
	return (void *)vb_syscall(SYS_mmap, at, length, (long)rights, (long)flags, (long)fd, offset);
}

static inline int vb_unmap(void *at, size_t length)
{
	return vb_syscall(SYS_munmap, at, length);
}

static inline int vb_protect(void *at, size_t length, int rights)
{
	return vb_syscall(SYS_mprotect, at, length, (long)rights);
}

static inline int vb_advise(void *at, size_t length, int advice)
{
	return vb_syscall(SYS_madvise, at, length, (long)advice);
}

static inline void *vb_remap(uintptr_t at, size_t old, size_t length, int flags, void *target)
{
	return (void *)vb_syscall(SYS_mremap, at, old, length, (long)flags, target);
}

/* The function of this name that the program would have without this library. */
#define REAL(name)                                                                       \
	({                                                                               \
		static __typeof__(&name) real;                                           \
		if (!real)                                                               \
			real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);               \
		real;                                                                    \
	})

/* ---- locks.c: a child of fork starts with free locks, also where another thread held one */
struct vb_lock {
	pthread_mutex_t mutex;
	/* `vb_forks` when it was made free. */
	unsigned forks;
};
#define VB_LOCK_INITIALIZER { PTHREAD_MUTEX_INITIALIZER, 0 }
/* Forks that led to this process. */
extern unsigned vb_forks;
void vb_lock_init(struct vb_lock *lock);
void vb_lock_renew(struct vb_lock *lock);
/* In a child of fork, before it takes one. */
void vb_locks_leave(void);
static inline void vb_lock(struct vb_lock *lock)
{
	if (__atomic_load_n(&lock->forks, __ATOMIC_ACQUIRE) != vb_forks)
		vb_lock_renew(lock);
	pthread_mutex_lock(&lock->mutex);
}
static inline void vb_unlock(struct vb_lock *lock)
{
	pthread_mutex_unlock(&lock->mutex);
}

/* ---- environment.c: variables of `verbena run` */
/* The value, also of one that the program has removed since it was loaded; NULL: there is no such. */
const char *vb_setting(const char *name);
/* All of them as they were then, up to a NULL. */
char *const *vb_settings(void);

/* ---- child-channel.c: control verbs of a child of fork */
#define CHILD_WORDS 4
/* Draws the name and the token, for HELLO. 0 or an errno. */
int vb_child_begin(uint64_t words[CHILD_WORDS]);
/* In a child: 0 if `vb.socket` is its own and the operation is one for it, or EIO. */
int vb_child_join(uint32_t operation);
/* A socket that a process of this user or of root accepts, or -1. `pid`: that process, or 0. */
int vb_connect(const char *name, pid_t pid);

/* ---- offer.c: the device in the process of `verbena run` */
/* Passes that process the descriptors of a sidecar. Whether it may have some; `is_taken`: all. */
bool vb_take_offer(const int *descriptors, int count, bool *is_taken);

static inline void *vb_at(uint64_t address)
{
	return vb.base + address;
}

/* Words that both processes use. */
static inline uint32_t vb_load(const void *word)
{
	return __atomic_load_n((const uint32_t *)word, __ATOMIC_SEQ_CST);
}
static inline void vb_store(void *word, uint32_t value)
{
	__atomic_store_n((uint32_t *)word, value, __ATOMIC_SEQ_CST);
}
static inline uint32_t vb_exchange(void *word, uint32_t value)
{
	return __atomic_exchange_n((uint32_t *)word, value, __ATOMIC_SEQ_CST);
}

/* ---- interfaces.c: the network interface that has the device's address */
const char *vb_interface_name(void);
/* The same with a line feed. */
const char *vb_interface_line(void);

/* ---- handles.c: objects by the sidecar's number */
int vb_handle_put(uint64_t handle, void *object);
void *vb_handle_hold(uint64_t handle, void (*hold)(void *object, uint64_t type), uint64_t type);
void vb_handle_drop(uint64_t handle);
void vb_handles_forget(void);

/* ---- memory.c: registered pages lie in the device's memory */
struct vb_piece {
	uint64_t linear;
	uint64_t length;
};
/* All of them fit into one message. */
#define VB_PIECES_MAX 28
/*
 * Where [address, address + length) lies there, after moving its pages: in one piece, or in several
 * if there is no room for one. Returns their number; 0 and errno.
 */
int vb_memory_place(uintptr_t address, size_t length, bool writes, struct vb_piece *pieces);
/* A region of these pieces begins (1) or ends (-1). */
void vb_memory_hold(const struct vb_piece *pieces, int count, int change);
int vb_memory_begin(void);
/* Whether any page of the program is in the device's memory. */
bool vb_memory_used(void);
/* Gives this process copies of its own of all pages; only one thread runs. 0 or an errno. */
int vb_memory_separate(void);
extern pthread_mutex_t vb_memory_lock;
/* A thread is in fork, with that lock. */
extern bool vb_forking;
/* Within: no signal handler of this thread runs, and it is not cancelled. */
struct vb_quiet {
	uint64_t signals;
	int cancel;
};
struct vb_quiet vb_memory_enter(void);
void vb_memory_leave(struct vb_quiet before);
/* The signals before this thread entered, if it has. */
uint64_t vb_memory_signals(uint64_t otherwise);

/* A fault at this address: true: the access is repeated, as pages have moved. */
bool vb_memory_fault(uintptr_t at);

/* ---- signals.c: SIGSEGV for the library, and the program's own handler */
/* `moving`: also on a thread whose stack is moving, if it has a signal stack. */
void vb_signals_catch(bool moving);
/* In a child of fork. */
void vb_signals_leave(void);

/* ---- objects.c, regions.c, queues.c, work-ex.c, device.c */
struct vb_mr {
	struct ibv_mr mr;
	/* Where its pages lie; none: it has no memory of the program's. */
	int count;
	struct vb_piece pieces[];
};

struct vb_ah {
	struct ibv_ah ah;
	uint32_t address;
};

/* Asynchronous events that the program has, which keep their object from being destroyed. */
struct vb_events {
	struct vb_lock lock;
	pthread_cond_t acknowledged;
	unsigned unacknowledged;
};

struct vb_srq {
	struct ibv_srq srq;
	uint32_t address;
	struct vb_lock lock;
	struct vb_events events;
};

struct vb_cq {
	struct ibv_cq_ex cq;
	uint32_t address;
	uint32_t tail;
	unsigned events_taken;
	struct vb_lock lock;
	struct vb_events events;
	struct abi_work_completion current;
};

struct vb_qp {
	struct ibv_qp_ex qp;
	uint32_t address;
	struct abi_queue_pair rings;
	/* Requests before this place in the send ring have left their places (send-slots.c). */
	uint32_t polled;
	struct vb_lock send_lock;
	struct vb_lock receive_lock;
	bool extended;
	bool signals_all;
	/* Between ibv_wr_start and ibv_wr_complete. */
	uint32_t batch;
	int batch_error;
	struct abi_work_request *current;
	struct abi_work_request scratch;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah;
	struct vb_events events;
};

struct vb_context {
	/* The last member: programs compute its address from the context's. */
	uint64_t handle;
	struct verbs_context verbs;
};

static inline struct vb_context *vb_context_of(struct ibv_context *context)
{
	struct verbs_context *verbs = verbs_get_ctx(context);
	return (struct vb_context *)((char *)verbs - offsetof(struct vb_context, verbs));
}

extern struct ibv_device vb_device;
/* EOPNOTSUPP, in words the first time. */
int vb_refuse_xrc(const char *verb);
void vb_events_init(struct vb_events *events);
void vb_events_wait(struct vb_events *events);
struct ibv_qp *vb_qp_make(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes,
			  uint64_t cm_id);
void vb_qp_forget(struct ibv_qp *qp);
/* The same attributes in their longer form; without `pd` the id's domain is meant. */
static inline struct ibv_qp_init_attr_ex vb_extended(const struct ibv_qp_init_attr *attr,
						     struct ibv_pd *pd)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0,
		.pd = pd,
	};
}
struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_srq *vb_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
uint64_t vb_channel_handle(struct ibv_comp_channel *channel);

uint32_t vb_qp_state(struct vb_qp *qp);
/* Says once on standard error that a queue has overflowed, if this one has. */
void vb_tell_overflow(const struct abi_completion_queue *queue);
struct abi_work_request *vb_send_slot(struct vb_qp *qp, uint32_t ahead);
int vb_slots_begin(void);
void vb_slots_add(struct vb_qp *qp);
void vb_slots_remove(struct vb_qp *qp);
void vb_slots_reset(struct vb_qp *qp);
void vb_slots_polled(const struct abi_work_completion *entry);
void vb_send_commit(struct vb_qp *qp, uint32_t count);
void vb_put_bind(struct abi_work_request *entry, uint32_t key, uint32_t target,
		 const struct ibv_mw_bind_info *info);
/* Wakes the sidecar's thread if it sleeps. */
void vb_kick(void);
/* Turns of the engine that have done something, and a pause after a poll in vain. */
uint32_t vb_turns(void);
bool vb_poll_pause(uint32_t turns);
int vb_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int vb_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vb_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vb_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int vb_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int vb_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
void vb_qp_ex_init(struct ibv_qp_ex *qp);

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int vb_dealloc_mw(struct ibv_mw *mw);
struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd);
struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int vb_free_dm(struct ibv_dm *dm);
struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			    unsigned int access);
int vb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *list, uint32_t count);
struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int vb_dealloc_td(struct ibv_td *td);
struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr);

/* NULL, and errno is set. */
static inline void *vb_null(int error)
{
	errno = error;
	return NULL;
}

/* The verbs return an errno; the programs of rdma-core print `errno`. */
static inline int vb_errno(int error)
{
	if (error)
		errno = error;
	return error;
}

#endif
