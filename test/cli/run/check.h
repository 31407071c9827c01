/* Ends a test program that is wrong about something, with the line. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                  \
	do {                                                              \
		if (!(condition)) {                                       \
			fprintf(stderr, "line %d: %m\n", __LINE__);       \
			exit(1);                                          \
		}                                                         \
	} while (0)
