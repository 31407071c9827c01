/*
 * A program with limits of its own (setrlimit): a resource, its soft limit, and `hard` if the hard
 * limit is the same. Then an RDMA WRITE, and errno behind verbs that succeed.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include "check.h"
#include "loopback.h"

static char memory[1 << 20];

int main(int argc, char **argv)
{
	struct rlimit limit;
	CHECK(argc >= 3);
	int resource = strcmp(argv[1], "files") ? strcmp(argv[1], "size") ? RLIMIT_AS : RLIMIT_FSIZE :
						  RLIMIT_NOFILE;
	CHECK(!getrlimit(resource, &limit));
	limit.rlim_cur = strtoul(argv[2], NULL, 0);
	if (argc > 3)
		limit.rlim_max = limit.rlim_cur;
	CHECK(!setrlimit(resource, &limit));
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list ? ibv_open_device(list[0]) : NULL;
	if (!context) {
		printf("no device: %s\n", strerrorname_np(errno));
		return 0;
	}
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp *qp = loopback(pd, cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS);
	CHECK(qp && mr);
	struct ibv_wc wc;
	errno = ENOTTY;
	for (int i = 0; i < 20; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	enum ibv_wc_status status = write_to(qp, mr, 5000, memory + 8192, mr);
	printf("written: %s, errno %s\n", ibv_wc_status_str(status), strerrorname_np(errno));
	return 0;
}
