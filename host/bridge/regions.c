/* Memory regions, memory windows, device memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static struct ibv_mr *fill_region(struct vb_mr *mr, struct ibv_pd *pd, void *address, size_t length,
				  const uint64_t *made)
{
	mr->mr = (struct ibv_mr){ .context = pd->context,
				  .pd = pd,
				  .addr = address,
				  .length = length,
				  .handle = made[0],
				  .lkey = made[1],
				  .rkey = made[2] };
	return &mr->mr;
}

static bool writes(unsigned access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

/* For a region of up to that number of pieces. */
static struct vb_mr *alloc_region(int pieces)
{
	return calloc(1, sizeof(struct vb_mr) + pieces * sizeof(struct vb_piece));
}

static int register_pieces(struct ibv_pd *pd, const struct vb_mr *mr, unsigned access,
			   uint64_t iova, uint64_t *made)
{
	const struct vb_piece *pieces = mr->pieces;
	if (mr->count == 1)
		return VB_CALL(OP_REG_MR, made, 3, pd->handle, pieces[0].linear, pieces[0].length,
			       access, iova);
	uint64_t words[3 + 2 * VB_PIECES_MAX] = { pd->handle, access, iova };
	memcpy(words + 3, pieces, mr->count * sizeof *pieces);
	return vb_call(OP_REG_PIECES, words, 3 + 2 * mr->count, made, 3);
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t length,
				      uint64_t iova, unsigned access)
{
	uint64_t made[3];
	if (length == 0)
		return vb_null(EINVAL);
	/* All memory, also what is mapped later: pages would have no place. */
	if (access & IBV_ACCESS_ON_DEMAND && !address && length == SIZE_MAX)
		return vb_null(EOPNOTSUPP);
	/* Optional flags that a device does not know are ignored. */
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	/* Not within: another thread may be in madvise with the allocator's lock. */
	struct vb_mr *mr = alloc_region(VB_PIECES_MAX);
	if (!mr)
		return vb_null(ENOMEM);
	struct vb_quiet quiet = vb_memory_enter();
	mr->count = vb_memory_place((uintptr_t)address, length, writes(access), mr->pieces);
	int error = mr->count ? register_pieces(pd, mr, access, iova, made) : errno;
	if (!error)
		vb_memory_hold(mr->pieces, mr->count, 1);
	vb_memory_leave(quiet);
	if (error) {
		free(mr);
		return vb_null(error);
	}
	struct vb_mr *fitting = realloc(mr, sizeof *mr + mr->count * sizeof *mr->pieces);
	return fill_region(fitting ? fitting : mr, pd, address, length, made);
}

#undef ibv_reg_mr
VB_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	return register_memory(pd, address, length, (uintptr_t)address, access);
}

#undef ibv_reg_mr_iova
VB_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
					 uint64_t iova, int access)
{
	return register_memory(pd, address, length, iova, access);
}

VB_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
					  uint64_t iova, unsigned int access)
{
	return register_memory(pd, address, length, iova, access);
}

VB_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					   uint64_t iova, int fd, int access)
{
	return vb_null(EOPNOTSUPP);
}

VB_EXPORT int ibv_rereg_mr(struct ibv_mr *ibv_mr, int flags, struct ibv_pd *pd, void *address,
			   size_t length, int access)
{
	struct vb_mr *mr = (struct vb_mr *)ibv_mr;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	struct vb_piece pieces[VB_PIECES_MAX] = { 0 };
	int count = 1, error = 0;
	if (!flags || flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (moves && (!length || !address)) ||
	    (flags & IBV_REREG_MR_CHANGE_PD && !pd)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	/* The sidecar has a layout for it. */
	if (mr->count > 1) {
		errno = EOPNOTSUPP;
		return IBV_REREG_MR_ERR_INPUT;
	}
	access &= ~IBV_ACCESS_OPTIONAL_RANGE;
	struct vb_quiet quiet = vb_memory_enter();
	if (moves)
		count = vb_memory_place((uintptr_t)address, length, writes(access), pieces);
	/* Pages that are to be written now: as at a registration, each must allow it. */
	else if (flags & IBV_REREG_MR_CHANGE_ACCESS && writes(access) && mr->count)
		count = vb_memory_place((uintptr_t)ibv_mr->addr, ibv_mr->length, true, pieces);
	if (count != 1)
		error = count ? ENOMEM : errno;
	if (!error)
		error = VB_CALL(OP_REREG_MR, NULL, 0, ibv_mr->handle, flags, pd ? pd->handle : 0,
				pieces[0].linear, length, access, (uintptr_t)address);
	if (!error && moves) {
		vb_memory_hold(mr->pieces, mr->count, -1);
		vb_memory_hold(pieces, 1, 1);
		mr->pieces[0] = pieces[0];
		mr->count = 1;
		ibv_mr->addr = address;
		ibv_mr->length = length;
	}
	if (!error && flags & IBV_REREG_MR_CHANGE_PD) {
		ibv_mr->pd = pd;
		ibv_mr->context = pd->context;
	}
	vb_memory_leave(quiet);
	errno = error;
	return error ? IBV_REREG_MR_ERR_INPUT : 0;
}

VB_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv_mr)
{
	struct vb_mr *mr = (struct vb_mr *)ibv_mr;
	struct vb_quiet quiet = vb_memory_enter();
	int error = VB_CALL(OP_DEREG_MR, NULL, 0, ibv_mr->handle);
	if (!error)
		vb_memory_hold(mr->pieces, mr->count, -1);
	vb_memory_leave(quiet);
	if (!error)
		free(mr);
	return error;
}

/* Within a process: by the number of a region. */
VB_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	uint64_t found[3];
	struct vb_mr *mr = alloc_region(1);
	if (!mr)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_QUERY_MR, found, 3, handle);
	if (error) {
		free(mr);
		return vb_null(error);
	}
	const uint64_t made[3] = { handle, found[0], found[1] };
	return fill_region(mr, pd, NULL, found[2], made);
}

VB_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	free(mr);
}

/* A region without memory of the program's. */
static struct ibv_mr *plain_region(struct ibv_pd *pd, size_t length, int error,
				   const uint64_t *made, struct vb_mr *mr)
{
	if (!error)
		return fill_region(mr, pd, NULL, length, made);
	free(mr);
	return vb_null(error);
}

struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd)
{
	uint64_t made[3] = { 0 };
	struct vb_mr *mr = alloc_region(1);
	if (!mr)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_NULL_MR, made, 3, pd->handle);
	return plain_region(pd, SIZE_MAX, error, made, mr);
}

int vb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *list, uint32_t count)
{
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || flags & ~IBV_ADVISE_MR_FLAG_FLUSH)
		return vb_errno(EOPNOTSUPP);
	return count ? 0 : vb_errno(EINVAL);
}

/* ---- memory windows */

struct ibv_mw *vb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	uint64_t made[2];
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return vb_null(EOPNOTSUPP);
	struct ibv_mw *mw = calloc(1, sizeof *mw);
	if (!mw)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_ALLOC_MW, made, 2, pd->handle, type);
	if (error) {
		free(mw);
		return vb_null(error);
	}
	*mw = (struct ibv_mw){ .context = pd->context,
			       .pd = pd,
			       .rkey = made[1],
			       .handle = made[0],
			       .type = type };
	return mw;
}

int vb_dealloc_mw(struct ibv_mw *mw)
{
	int error = VB_CALL(OP_DEALLOC_MW, NULL, 0, mw->handle);
	if (!error)
		free(mw);
	return error;
}

/* ---- device memory */

struct device_memory {
	struct ibv_dm dm;
	uint64_t linear;
	uint64_t length;
};

/* Multiples of four, as mlx5 has it. */
static bool is_inside(const struct device_memory *dm, uint64_t offset, size_t length)
{
	return !(offset & 3) && !(length & 3) && offset <= dm->length &&
	       length <= dm->length - offset;
}

static int copy_to_dm(struct ibv_dm *ibv_dm, uint64_t offset, const void *from, size_t length)
{
	struct device_memory *dm = (struct device_memory *)ibv_dm;
	if (!is_inside(dm, offset, length))
		return vb_errno(EINVAL);
	memcpy((char *)vb_at(dm->linear) + offset, from, length);
	return 0;
}

static int copy_from_dm(void *to, struct ibv_dm *ibv_dm, uint64_t offset, size_t length)
{
	struct device_memory *dm = (struct device_memory *)ibv_dm;
	if (!is_inside(dm, offset, length))
		return vb_errno(EINVAL);
	memcpy(to, (char *)vb_at(dm->linear) + offset, length);
	return 0;
}

struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	uint64_t made[2];
	struct device_memory *dm = calloc(1, sizeof *dm);
	if (!dm)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_ALLOC_DM, made, 2, attr->length);
	if (!error && (error = vb_handle_put(made[0], dm)))
		VB_CALL(OP_FREE_DM, NULL, 0, made[0]);
	if (error) {
		free(dm);
		return vb_null(error);
	}
	dm->dm = (struct ibv_dm){ .context = context,
				  .memcpy_to_dm = copy_to_dm,
				  .memcpy_from_dm = copy_from_dm,
				  .handle = made[0] };
	dm->linear = made[1];
	dm->length = attr->length;
	return &dm->dm;
}

int vb_free_dm(struct ibv_dm *dm)
{
	int error = VB_CALL(OP_FREE_DM, NULL, 0, dm->handle);
	if (error)
		return error;
	vb_handle_drop(dm->handle);
	free(dm);
	return 0;
}

struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			    unsigned int access)
{
	uint64_t made[3] = { 0 };
	struct vb_mr *mr = alloc_region(1);
	if (!mr)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_REG_DM_MR, made, 3, pd->handle, dm->handle, offset, length, access);
	return plain_region(pd, length, error, made, mr);
}

static void copy_dm(void *object, uint64_t to)
{
	struct device_memory *dm = object;
	/* The number may be that of a queue. */
	if (dm->dm.memcpy_to_dm == copy_to_dm)
		*(struct device_memory *)(uintptr_t)to = *dm;
}

/* The same memory, by another object. */
VB_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct device_memory *dm = calloc(1, sizeof *dm);
	if (!dm)
		return vb_null(ENOMEM);
	vb_handle_hold(handle, copy_dm, (uintptr_t)dm);
	if (!dm->dm.memcpy_to_dm) {
		free(dm);
		return vb_null(ENOENT);
	}
	dm->dm.context = context;
	return &dm->dm;
}

VB_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	free(dm);
}
