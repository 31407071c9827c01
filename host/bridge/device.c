/* The one device, its contexts and queries. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"

/* A locally administered EUI-64 that ends in the IPv4 address. */
#define GUID_PREFIX 0x0200000000000000ull
/* ns, steps of 1000: the device's clock counts microseconds. */
#define CORE_CLOCK_KHZ 1000000
#define ACK_DELAY 15

struct ibv_device vb_device = {
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.name = "verbena0",
	.dev_name = "uverbs0",
	.dev_path = "/sys/class/infiniband_verbs/uverbs0",
	.ibdev_path = "/sys/class/infiniband/verbena0",
};

VB_EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof *list);
	if (!list)
		return NULL;
	list[0] = &vb_device;
	if (count)
		*count = 1;
	return list;
}

VB_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

VB_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

VB_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return 0;
}

VB_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct in6_addr address = { 0 };
	const char *text = vb_setting("VERBENA_RUN_ADDRESS");
	uint32_t low = INADDR_LOOPBACK;
	if (text && inet_pton(AF_INET, text, &address) == 1)
		memcpy(&low, &address, 4);
	else if (text && inet_pton(AF_INET6, text, &address) == 1)
		memcpy(&low, address.s6_addr + 12, 4);
	else
		low = htonl(low);
	return htobe64(GUID_PREFIX | ntohl(low));
}

VB_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const uint64_t *hello = vb.hello;
	*attr = (struct ibv_device_attr){
		.fw_ver = "0.1",
		.node_guid = ibv_get_device_guid(context->device),
		.sys_image_guid = ibv_get_device_guid(context->device),
		.max_mr_size = hello[HELLO_AREA_BYTES],
		.page_size_cap = VB_PAGE,
		.vendor_id = 0xffffff,
		.max_qp = hello[HELLO_MAX_QP],
		.max_qp_wr = hello[HELLO_MAX_QP_WR],
		.device_cap_flags = hello[HELLO_DEVICE_CAP_FLAGS],
		.max_sge = hello[HELLO_MAX_SGE],
		.max_sge_rd = hello[HELLO_MAX_SGE],
		.max_cq = hello[HELLO_MAX_CQ],
		.max_cqe = hello[HELLO_MAX_CQE],
		.max_mr = hello[HELLO_MAX_MR],
		.max_mw = hello[HELLO_MAX_MR],
		.max_pd = hello[HELLO_MAX_PD],
		.max_qp_rd_atom = hello[HELLO_MAX_QP_RD_ATOM],
		.max_qp_init_rd_atom = hello[HELLO_MAX_QP_RD_ATOM],
		.max_res_rd_atom = hello[HELLO_MAX_QP_RD_ATOM] * hello[HELLO_MAX_QP],
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mcast_grp = hello[HELLO_MAX_MCAST],
		.max_mcast_qp_attach = hello[HELLO_MAX_MCAST],
		.max_total_mcast_qp_attach = hello[HELLO_MAX_MCAST],
		.max_ah = hello[HELLO_MAX_AH],
		.max_srq = hello[HELLO_MAX_SRQ],
		.max_srq_wr = hello[HELLO_MAX_SRQ_WR],
		.max_srq_sge = hello[HELLO_MAX_SGE],
		.max_pkeys = 1,
		.local_ca_ack_delay = ACK_DELAY,
		.phys_port_cnt = 1,
	};
	return 0;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	const uint32_t datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
				   IBV_ODP_SUPPORT_SRQ_RECV;
	const uint32_t unreliable = datagrams | IBV_ODP_SUPPORT_WRITE;
	struct ibv_device_attr_ex full = { 0 };
	if (input && input->comp_mask)
		return vb_errno(EINVAL);
	ibv_query_device(context, &full.orig_attr);
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
	full.odp_caps.general_caps = IBV_ODP_SUPPORT;
	full.odp_caps.per_transport_caps.rc_odp_caps = unreliable | IBV_ODP_SUPPORT_READ |
						       IBV_ODP_SUPPORT_ATOMIC;
	full.odp_caps.per_transport_caps.uc_odp_caps = unreliable;
	full.odp_caps.per_transport_caps.ud_odp_caps = datagrams;
	full.completion_timestamp_mask = UINT64_MAX;
	full.hca_core_clock = CORE_CLOCK_KHZ;
	full.max_dm_size = vb.hello[HELLO_MAX_DM_BYTES];
	full.phys_port_cnt_ex = 1;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof full ? size : sizeof full);
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size)
{
	const struct ibv_port_attr full = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = vb.hello[HELLO_ACTIVE_MTU],
		.gid_tbl_len = 1,
		.port_cap_flags = IBV_PORT_CM_SUP,
		.max_msg_sz = 1u << 31,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		/* 4X at 10 Gbit/s, and link up: a program waits for no less. */
		.active_width = 2,
		.active_speed = 4,
		.phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	if (port != 1)
		return vb_errno(EINVAL);
	/* A child of fork: is the device of its parent still there? */
	if (vb.owner != getpid() && VB_CALL(OP_QUERY_PORT, NULL, 0))
		return errno;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof full ? size : sizeof full);
	return 0;
}

/* The struct that programs of before rdma-core 28 have ends early. */
#undef ibv_query_port
VB_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
			     struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static union ibv_gid own_gid(void)
{
	union ibv_gid gid;
	memcpy(gid.raw, vb.hello + HELLO_GID_LOW, sizeof gid.raw);
	return gid;
}

VB_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*gid = own_gid();
	return 0;
}

/* Private to rdma-core: 1 is RoCE v2 as sysfs counts. */
VB_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				 int *type);
VB_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				 int *type)
{
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*type = 1;
	return 0;
}

VB_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	const struct ibv_gid_entry full = {
		.gid = own_gid(), .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = if_nametoindex(vb_interface_name())
	};
	if (port != 1 || flags)
		return vb_errno(EINVAL);
	if (index != 0)
		return vb_errno(ENODATA);
	memset(entry, 0, size);
	memcpy(entry, &full, size < sizeof full ? size : sizeof full);
	return 0;
}

VB_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				       size_t count, uint32_t flags, size_t size)
{
	if (count == 0)
		return -EINVAL;
	int error = _ibv_query_gid_ex(context, 1, 0, entries, flags, size);
	return error ? -error : 1;
}

VB_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

VB_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (port == 1 && pkey == 0xffff)
		return 0;
	errno = EINVAL;
	return -1;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	if (!(values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
		return vb_errno(EINVAL);
	clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	return 0;
}

static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return vb_errno(EOPNOTSUPP);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	return vb_null(vb_refuse_xrc("ibv_open_xrcd"));
}

/* ---- contexts */

static void fill_operations(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;
	ops->poll_cq = vb_poll_cq;
	ops->req_notify_cq = vb_req_notify_cq;
	ops->post_send = vb_post_send;
	ops->post_recv = vb_post_recv;
	ops->post_srq_recv = vb_post_srq_recv;
	ops->alloc_mw = vb_alloc_mw;
	ops->bind_mw = vb_bind_mw;
	ops->dealloc_mw = vb_dealloc_mw;
	/* Those that are not here are refused by verbs.h (EOPNOTSUPP). */
	verbs->open_xrcd = open_xrcd;
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->create_qp_ex = vb_create_qp_ex;
	verbs->create_cq_ex = vb_create_cq_ex;
	verbs->create_srq_ex = vb_create_srq_ex;
	verbs->modify_cq = modify_cq;
	verbs->alloc_null_mr = vb_alloc_null_mr;
	verbs->alloc_dm = vb_alloc_dm;
	verbs->free_dm = vb_free_dm;
	verbs->reg_dm_mr = vb_reg_dm_mr;
	verbs->advise_mr = vb_advise_mr;
	verbs->alloc_td = vb_alloc_td;
	verbs->dealloc_td = vb_dealloc_td;
	verbs->alloc_parent_domain = vb_alloc_parent_domain;
	verbs->query_rt_values = query_rt_values;
}

VB_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int error = vb_start();
	struct vb_context *opened = error ? NULL : calloc(1, sizeof *opened);
	if (!opened)
		return vb_null(error ? error : ENOMEM);
	struct ibv_context *context = &opened->verbs.context;
	error = vb_make_channel(OP_OPEN_CONTEXT, &context->async_fd, &opened->handle);
	if (error) {
		free(opened);
		return vb_null(error);
	}
	opened->verbs.sz = sizeof opened->verbs;
	context->device = device;
	/* Programs duplicate it, and import the device by it. */
	context->cmd_fd = fcntl(vb.wake, F_DUPFD_CLOEXEC, 0);
	context->num_comp_vectors = 1;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&context->mutex, NULL);
	fill_operations(&opened->verbs);
	return context;
}

VB_EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct vb_context *opened = vb_context_of(context);
	int error = VB_CALL(OP_CLOSE_CONTEXT, NULL, 0, opened->handle);
	close(context->async_fd);
	close(context->cmd_fd);
	free(opened);
	return error;
}

/* All contexts of a process are one device. */
VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *context = ibv_open_device(&vb_device);
	if (!context)
		return NULL;
	close(context->cmd_fd);
	context->cmd_fd = cmd_fd;
	return context;
}

/* ---- asynchronous events */

struct async_record {
	uint64_t type;
	uint64_t handle;
};

/* The events of an object, by the type of the event; NULL: an event of the port or the device. */
static struct vb_events *events_of(enum ibv_event_type type, void *object)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct vb_cq *)object)->events;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &((struct vb_srq *)object)->events;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &((struct vb_qp *)object)->events;
	default:
		return NULL;
	}
}

static void hold_object(void *object, uint64_t type)
{
	struct vb_events *events = events_of(type, object);
	if (!events)
		return;
	vb_lock(&events->lock);
	events->unacknowledged++;
	vb_unlock(&events->lock);
}

VB_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	for (;;) {
		struct async_record record;
		if (vb_read_event(context->async_fd, &record, sizeof record))
			return -1;
		void *object = vb_handle_hold(record.handle, hold_object, record.type);
		if (record.handle && !object)
			continue;
		event->event_type = record.type;
		event->element.cq = object;
		if (!object)
			event->element.port_num = 1;
		return 0;
	}
}

VB_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct vb_events *events = events_of(event->event_type, event->element.cq);
	if (!events)
		return;
	vb_lock(&events->lock);
	if (events->unacknowledged > 0)
		events->unacknowledged--;
	pthread_cond_broadcast(&events->acknowledged);
	vb_unlock(&events->lock);
}
