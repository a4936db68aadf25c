#ifndef HTTP_H
#define HTTP_H
#include <stddef.h>

/* The size of the whole answer that begins at `from`, head and body; 0 while it is incomplete. Writes to the head and
 * puts it back.
 */
size_t http_answer_bytes(char *from, size_t size);
#endif
