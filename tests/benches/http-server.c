// A small MCP server over Streamable HTTP for measurements: threads, keep-alive, JSON answers, no session.
//
// usage: http-server PORT. Tools: `echo` gives back its `text`, `connections` says how many were accepted.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (1 << 20)

static atomic_int connections;

static void reply(int to, const char *id, const char *result) {
    char out[8192];
    char body[6144];
    int n = snprintf(body, sizeof body, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", id, result);
    int m = snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n, body);
    if (write(to, out, m) != m) close(to);
}

// The value behind "key": as it stands, up to the next comma or brace of its level.
static void value(const char *json, const char *key, char *into, size_t room) {
    const char *at = strstr(json, key);
    into[0] = 0;
    if (!at) return;
    at += strlen(key);
    size_t n = 0;
    if (*at == '"') {
        do into[n++] = *at++; while (*at && *at != '"' && n + 2 < room);
        into[n++] = '"';
    } else {
        while (*at && *at != ',' && *at != '}' && n + 1 < room) into[n++] = *at++;
    }
    into[n] = 0;
}

static void answer(int to, const char *head, const char *body) {
    char id[64], text[4096], result[5120];
    if (strncmp(head, "POST", 4)) {
        const char *no = "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n";
        if (write(to, no, strlen(no)) < 0) close(to);
        return;
    }
    value(body, "\"id\":", id, sizeof id);
    if (!id[0]) {
        const char *ok = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        if (write(to, ok, strlen(ok)) < 0) close(to);
    } else if (strstr(body, "\"initialize\"")) {
        reply(to, id, "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"c\",\"version\":\"1\"}}");
    } else if (strstr(body, "\"tools/list\"")) {
        reply(to, id, "{\"tools\":[{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\"}},{\"name\":\"connections\",\"inputSchema\":{\"type\":\"object\"}}]}");
    } else if (strstr(body, "\"name\":\"connections\"")) {
        snprintf(result, sizeof result, "{\"content\":[{\"type\":\"text\",\"text\":\"%d\"}]}", atomic_load(&connections));
        reply(to, id, result);
    } else {
        value(body, "\"text\":", text, sizeof text);
        snprintf(result, sizeof result, "{\"content\":[{\"type\":\"text\",\"text\":%s}]}", text[0] ? text : "\"\"");
        reply(to, id, result);
    }
}

static void *serve(void *arg) {
    int from = (int)(long)arg, one = 1;
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    char *in = malloc(ROOM);
    size_t have = 0;
    for (;;) {
        ssize_t n = read(from, in + have, ROOM - 1 - have);
        if (n <= 0) break;
        have += n;
        in[have] = 0;
        for (;;) {
            char *end = strstr(in, "\r\n\r\n");
            if (!end) break;
            *end = 0;
            char *length = strcasestr(in, "content-length:");
            size_t want = length ? strtoul(length + 15, 0, 10) : 0, head = end + 4 - in;
            if (have < head + want) {
                *end = '\r';
                break;
            }
            char kept = in[head + want];
            in[head + want] = 0;
            answer(from, in, in + head);
            in[head + want] = kept;
            have -= head + want;
            memmove(in, in + head + want, have + 1);
        }
    }
    close(from);
    free(in);
    return 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(on, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(on, (struct sockaddr *)&at, sizeof at) || listen(on, 256)) return 1;
    for (;;) {
        int from = accept(on, 0, 0);
        if (from < 0) continue;
        atomic_fetch_add(&connections, 1);
        pthread_t thread;
        if (pthread_create(&thread, 0, serve, (void *)(long)from)) close(from);
        else pthread_detach(thread);
    }
}
