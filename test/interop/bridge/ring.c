/* An MPI program: a sum over all ranks, and a ring of messages whose bytes are compared. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static char pattern(int at, int rank)
{
	return (char)(at * 7 + rank);
}

int main(int argc, char **argv)
{
	const int bytes = 1 << 18;
	int rank, ranks, wrong = 0;
	long sum = 0, own;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	own = rank + 1;
	MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	char *sent = malloc(bytes), *received = malloc(bytes);
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	for (int i = 0; i < bytes; i++)
		sent[i] = pattern(i, rank);
	MPI_Sendrecv(sent, bytes, MPI_CHAR, next, 1, received, bytes, MPI_CHAR, before, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < bytes; i++)
		wrong += received[i] != pattern(i, before);
	printf("rank %d: sum %ld, %d wrong bytes\n", rank, sum, wrong);
	MPI_Finalize();
	return wrong != 0 || sum != (long)ranks * (ranks + 1) / 2;
}
