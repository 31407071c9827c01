/*
 * The batching UDP link in this process, for turns of its own: what host/link/udp/receive-slots.ts
 * and send-messages.ts do in the sidecar, on the same socket. One thread is here at a time: that
 * with the turn.
 *
 * System calls are made directly: those of the C library are points at which a thread may be
 * cancelled, and a thread that ends here would keep the turn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"
#include "turns.h"

/* linux/udp.h, which older headers of the C library lack. */
#define VB_SOL_UDP 17
#define VB_UDP_SEGMENT 103
#define VB_UDP_GRO 104

#define SLOTS_MAX 16
/* Slots of one call if datagrams are long: more do not stay in the second cache. */
#define LONG_SLOTS 4
#define SHORT_BYTES 512
#define ECN_CE 3
#define BTH_FECN_BYTE 4
#define BTH_FECN 0x80

#define MESSAGES 64
#define SEGMENTS_MAX 128
#define SEGMENTS_LEAST 64
#define SEGMENTED_BYTES_MAX 65000
/* With more such places no run is sent anywhere. */
#define PLAIN_MAX 16
/* So long a full send buffer may take to drain; then the packet counts as lost. */
#define SEND_BUFFER_WAIT_NANOSECONDS 1000000

union name {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

union control {
	char bytes[64];
	struct cmsghdr align;
};

static struct {
	int fd;
	bool is_ipv4;
	/* Other processes have the device as well. */
	bool is_shared;
	uint32_t address;
	unsigned slots;
	/* How many slots the next call offers, and what the last one found. */
	unsigned asked;
	unsigned filled;
	unsigned shorts;
	struct mmsghdr headers[SLOTS_MAX];
	struct iovec places[SLOTS_MAX];
	union name names[SLOTS_MAX];
	union control controls[SLOTS_MAX];
} in;

struct place {
	uint64_t gid0, gid1;
	uint32_t port;
};

static struct {
	/* Segments per message that this kernel and this interface accept; 1: no segments. */
	unsigned segments_max;
	unsigned count;
	struct mmsghdr headers[MESSAGES];
	struct iovec places[MESSAGES];
	union name names[MESSAGES];
	union control controls[MESSAGES];
	unsigned packets[MESSAGES];
	/* Index in the list of the first packet of each message. */
	unsigned firsts[MESSAGES];
	/* Places that runs do not get to, one packet at a time. */
	struct place plain[PLAIN_MAX];
	unsigned plain_count;
} out;

void vb_datagrams_begin(int socket, uint32_t address, unsigned slots, bool can_segment)
{
	const struct abi_context *context = vb_at(vb.hello[HELLO_CONTEXT]);
	memset(&in, 0, sizeof in);
	memset(&out, 0, sizeof out);
	in.fd = socket;
	/* ::ffff:a.b.c.d */
	in.is_ipv4 = context->local_gid0 == 0 && (uint32_t)context->local_gid1 == 0xffff0000u;
	in.is_shared = vb.shared != 0;
	in.address = address;
	in.slots = slots < SLOTS_MAX ? slots : SLOTS_MAX;
	in.asked = 1;
	out.segments_max = can_segment ? SEGMENTS_MAX : 1;
}

/* ---- receiving */

static void offer(unsigned slot)
{
	in.places[slot] = (struct iovec){ vb_at(in.address + slot * VB_SLOT_BYTES), VB_SLOT_BYTES };
	in.headers[slot].msg_hdr = (struct msghdr){ .msg_name = &in.names[slot],
						    .msg_namelen = sizeof in.names[slot],
						    .msg_iov = &in.places[slot],
						    .msg_iovlen = 1,
						    .msg_control = &in.controls[slot],
						    .msg_controllen = sizeof in.controls[slot] };
}

/* Bytes of the segments of a run; 0: a single datagram. */
static uint32_t read_control(struct msghdr *header, bool *congested)
{
	uint32_t segment = 0;
	for (struct cmsghdr *one = CMSG_FIRSTHDR(header); one; one = CMSG_NXTHDR(header, one)) {
		int value = 0;
		size_t length = one->cmsg_len - CMSG_LEN(0);
		memcpy(&value, CMSG_DATA(one), length < sizeof value ? length : sizeof value);
		bool is_class = (one->cmsg_level == SOL_IP && one->cmsg_type == IP_TOS) ||
				(one->cmsg_level == SOL_IPV6 && one->cmsg_type == IPV6_TCLASS);
		if (one->cmsg_level == VB_SOL_UDP && one->cmsg_type == VB_UDP_GRO)
			segment = value;
		else if (is_class)
			*congested = (value & ECN_CE) == ECN_CE;
	}
	return segment;
}

static void put_source(struct abi_receive_descriptor *to, const union name *from)
{
	if (in.is_ipv4) {
		to->source_gid0 = 0;
		to->source_gid1 = 0xffff0000u | (uint64_t)from->v4.sin_addr.s_addr << 32;
		to->source_port = ntohs(from->v4.sin_port);
	} else {
		memcpy(&to->source_gid0, &from->v6.sin6_addr, 16);
		to->source_port = ntohs(from->v6.sin6_port);
	}
}

/* The packets of a slot, for the engine. */
static void describe(unsigned slot, struct abi_receive_descriptor *to)
{
	uint32_t length = in.headers[slot].msg_len;
	bool congested = false;
	uint32_t segment = read_control(&in.headers[slot].msg_hdr, &congested);
	bool is_run = segment > 0 && segment < length;
	uint32_t step = is_run ? segment : length;
	*to = (struct abi_receive_descriptor){ .address = in.address + slot * VB_SLOT_BYTES,
					       .length = length,
					       .segment_size = is_run ? step : 0 };
	put_source(to, &in.names[slot]);
	in.shorts += length <= SHORT_BYTES;
	if (congested) {
		uint8_t *bytes = vb_at(to->address);
		/* The ICRC does not cover this bit. */
		for (uint32_t at = BTH_FECN_BYTE; at < length; at += step)
			bytes[at] |= BTH_FECN;
	}
}

/* Byte 5 of a BTH, the upper one of the queue pair's number: a process of the device. */
#define BTH_SLOT_BYTE 5
#define BTH_SLOT_END 8
#define MULTICAST_SLOT 0xff

/*
 * Is the packet for another process of the device, or for its connection manager? Then the sidecar
 * finds out which (host/device/sharing/packet-inbox.ts).
 */
static bool is_stray(const uint8_t *packet, uint32_t length, uint32_t slot)
{
	if (length < BTH_SLOT_END || packet[BTH_SLOT_BYTE] == MULTICAST_SLOT)
		return false;
	bool is_service = packet[BTH_SLOT_BYTE] == 0 && packet[BTH_SLOT_BYTE + 1] == 0 &&
			  packet[BTH_SLOT_BYTE + 2] == 1;
	return is_service || packet[BTH_SLOT_BYTE] != slot;
}

/* Full, it is lost, as on any network. */
static void put_stray(const struct abi_receive_descriptor *from, uint32_t address, uint32_t length)
{
	char *strays = vb_at(vb.hello[HELLO_STRAYS]);
	uint32_t count = vb_load(strays);
	if (count >= ABI_STRAY_ENTRIES || length > ABI_STRAY_BYTES - ABI_STRAY_PACKET)
		return;
	char *entry = strays + ABI_STRAYS_HEADER_BYTES + (size_t)count * ABI_STRAY_BYTES;
	memcpy(entry, &from->source_gid0, 16);
	memcpy(entry + ABI_STRAY_PORT, &from->source_port, 4);
	memcpy(entry + ABI_STRAY_LENGTH, &length, 4);
	memcpy(entry + ABI_STRAY_PACKET, vb_at(address), length);
	vb_store(strays, count + 1);
}

/* Leaves the descriptor out, or shortens it, if some of its packets are for others. */
static unsigned sort_out(struct abi_receive_descriptor *one, uint32_t slot)
{
	const uint32_t step = one->segment_size ? one->segment_size : one->length;
	const uint32_t end = one->address + one->length;
	uint32_t at = one->address, kept = one->address;
	while (at < end && !is_stray(vb_at(at), end - at < step ? end - at : step, slot))
		at += step;
	if (at >= end)
		return 1;
	/* Seldom: the packets that are ours move to the beginning of the slot. */
	for (at = one->address; at < end; at += step) {
		uint32_t length = end - at < step ? end - at : step;
		if (is_stray(vb_at(at), length, slot)) {
			put_stray(one, at, length);
			continue;
		}
		memmove(vb_at(kept), vb_at(at), length);
		kept += length;
	}
	one->length = kept - one->address;
	return one->length > 0;
}

int vb_datagrams_receive(void)
{
	const struct abi_context *context = vb_at(vb.hello[HELLO_CONTEXT]);
	struct abi_receive_descriptor *list = vb_at(context->receive_descriptors);
	unsigned full = 2 * in.shorts >= in.filled ? in.slots : LONG_SLOTS;
	int described = 0;
	for (unsigned slot = 0; slot < in.asked; slot++)
		offer(slot);
	long filled = syscall(SYS_recvmmsg, in.fd, in.headers, in.asked, MSG_DONTWAIT, NULL);
	int error = filled < 0 ? errno : 0;
	if (filled < 0)
		filled = 0;
	/* A look for a second one costs something as well: only where there may be one. */
	in.asked = (unsigned)filled == in.asked ? full : 1;
	in.filled = (unsigned)filled;
	in.shorts = 0;
	for (unsigned slot = 0; slot < (unsigned)filled; slot++) {
		describe(slot, &list[described]);
		/* The engine has no packet without a byte. */
		if (list[described].length > 0)
			described += in.is_shared ? sort_out(&list[described], context->slot_index) : 1;
	}
	return error ? -error : described;
}

/* ---- sending */

static bool put_name(unsigned message, const struct abi_path *path)
{
	union name *to = &out.names[message];
	bool is_ipv4 = path->remote_gid0 == 0 && (uint32_t)path->remote_gid1 == 0xffff0000u;
	if (is_ipv4 != in.is_ipv4)
		return false;
	if (is_ipv4) {
		to->v4 = (struct sockaddr_in){ .sin_family = AF_INET,
					       .sin_port = htons(path->remote_port) };
		to->v4.sin_addr.s_addr = path->remote_gid1 >> 32;
		return true;
	}
	to->v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6,
					.sin6_port = htons(path->remote_port) };
	memcpy(&to->v6.sin6_addr, &path->remote_gid0, 16);
	return true;
}

/* `packets` of `size` bytes each at `start`, the last one perhaps shorter. */
static void put_message(unsigned message, uint8_t *start, size_t length, unsigned packets,
			uint32_t size)
{
	struct msghdr *header = &out.headers[message].msg_hdr;
	out.places[message] = (struct iovec){ start, length };
	*header = (struct msghdr){ .msg_name = &out.names[message],
				   .msg_namelen = in.is_ipv4 ? sizeof(struct sockaddr_in) :
							       sizeof(struct sockaddr_in6),
				   .msg_iov = &out.places[message],
				   .msg_iovlen = 1 };
	out.packets[message] = packets;
	/* A packet by itself is spared the kernel's way of segments. */
	if (packets == 1)
		return;
	uint16_t segment = size;
	header->msg_control = &out.controls[message];
	header->msg_controllen = CMSG_SPACE(sizeof segment);
	struct cmsghdr *control = CMSG_FIRSTHDR(header);
	control->cmsg_level = VB_SOL_UDP;
	control->cmsg_type = VB_UDP_SEGMENT;
	control->cmsg_len = CMSG_LEN(sizeof segment);
	memcpy(CMSG_DATA(control), &segment, sizeof segment);
}

/* The peer's processes have a socket each, and a run arrives at one of them. */
static uint8_t slot_of(const struct abi_send_descriptor *one)
{
	return ((const uint8_t *)vb_at(one->address))[BTH_SLOT_BYTE];
}

static struct place place_of(const struct abi_path *path)
{
	return (struct place){ path->remote_gid0, path->remote_gid1, path->remote_port };
}

static unsigned most_segments(const struct abi_path *path)
{
	struct place place = place_of(path);
	if (!path->own_kind)
		return 1;
	for (unsigned i = 0; i < out.plain_count; i++)
		if (out.plain[i].gid0 == place.gid0 && out.plain[i].gid1 == place.gid1 &&
		    out.plain[i].port == place.port)
			return 1;
	return out.segments_max;
}

/* A packet of a run that was refused has got through. */
static void forbid_runs(const struct abi_path *path)
{
	if (most_segments(path) == 1)
		return;
	if (out.plain_count == PLAIN_MAX)
		out.segments_max = 1;
	else
		out.plain[out.plain_count++] = place_of(path);
}

static bool is_same_place(const struct abi_path *one, const struct abi_path *other)
{
	return one == other ||
	       (one->remote_gid0 == other->remote_gid0 && one->remote_gid1 == other->remote_gid1 &&
		one->remote_port == other->remote_port);
}

/* Makes messages of the packets from `index` on. Returns the first that has none yet. */
static unsigned make_messages(const struct abi_send_descriptor *list, unsigned index,
			      unsigned count)
{
	out.count = 0;
	while (index < count && out.count < MESSAGES) {
		unsigned first = index++;
		const struct abi_path *path = vb_at(list[first].path);
		uint32_t size = list[first].length, length = size;
		unsigned most = most_segments(path);
		if (!put_name(out.count, path))
			continue;
		while (index < count && index - first < most) {
			uint32_t more = list[index].length;
			if (more > size || more == 0 || length + more > SEGMENTED_BYTES_MAX ||
			    list[index].address != list[first].address + length ||
			    slot_of(&list[index]) != slot_of(&list[first]) ||
			    !is_same_place(path, vb_at(list[index].path)))
				break;
			length += more;
			index++;
			/* Only the last one may be shorter. */
			if (more < size)
				break;
		}
		out.firsts[out.count] = first;
		put_message(out.count++, vb_at(list[first].address), length, index - first, size);
	}
	return index;
}

static long hand(unsigned message, unsigned count)
{
	long taken = syscall(SYS_sendmmsg, in.fd, &out.headers[message], count, MSG_DONTWAIT);
	return taken < 0 ? -errno : taken;
}

static bool await_room(void)
{
	struct pollfd ready = { in.fd, POLLOUT, 0 };
	const struct timespec most = { 0, SEND_BUFFER_WAIT_NANOSECONDS };
	return syscall(SYS_ppoll, &ready, 1, &most, NULL, 0) > 0;
}

/* Segments in places where they are not possible: an interface without checksums, a tunnel. */
static bool is_about_segments(long error)
{
	return error == -EIO || error == -EINVAL || error == -EMSGSIZE || error == -EOPNOTSUPP;
}

typedef void too_long_call(uint32_t qpn);

/*
 * A run that was refused, in shorter ones or packet by packet. When these get through, there are no
 * more runs so long, or none to this place.
 */
static void send_in_parts(const struct abi_send_descriptor *list, unsigned message,
			  too_long_call *too_long)
{
	unsigned packets = out.packets[message], first = out.firsts[message];
	bool is_long = packets > SEGMENTS_LEAST;
	unsigned step = is_long ? SEGMENTS_LEAST : 1;
	uint32_t size = list[first].length;
	for (unsigned at = 0; at < packets; at += step) {
		unsigned part = packets - at < step ? packets - at : step;
		const struct abi_send_descriptor *last = &list[first + at + part - 1];
		uint8_t *start = vb_at(list[first + at].address);
		size_t length = (part - 1) * (size_t)size + last->length;
		put_message(message, start, length, part, size);
		out.firsts[message] = first + at;
		long taken = hand(message, 1);
		if (taken > 0 && is_long)
			out.segments_max = SEGMENTS_LEAST;
		else if (taken > 0)
			forbid_runs(vb_at(list[first].path));
		if (taken > 0)
			continue;
		if (part > 1 && is_about_segments(taken))
			send_in_parts(list, message, too_long);
		else if (taken == -EMSGSIZE)
			too_long(list[first + at].qpn);
	}
}

/* Hands the messages to the kernel, past those that it refuses: they are lost. */
static void hand_all(const struct abi_send_descriptor *list, too_long_call *too_long)
{
	unsigned waited = MESSAGES;
	/* A buffer that did not drain in time will not for the next message either. */
	bool may_wait = true;
	for (unsigned message = 0; message < out.count;) {
		long taken = hand(message, out.count - message);
		if (taken > 0) {
			message += taken;
			continue;
		}
		if (taken == -EINTR)
			continue;
		if (taken == -EAGAIN && may_wait && waited != message) {
			waited = message;
			may_wait = await_room();
			continue;
		}
		if (out.packets[message] > 1 && is_about_segments(taken))
			send_in_parts(list, message, too_long);
		else if (taken == -EMSGSIZE)
			too_long(list[out.firsts[message]].qpn);
		message++;
	}
}

void vb_datagrams_send(const struct abi_send_descriptor *list, unsigned count,
		       too_long_call *too_long)
{
	for (unsigned index = 0; index < count;) {
		index = make_messages(list, index, count);
		hand_all(list, too_long);
	}
}
