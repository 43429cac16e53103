#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum place { VRAM, VRAM_BAR, GTT, GTT_CACHED };

struct submission { const uint32_t *words; uint64_t count; uint64_t fence_va; uint64_t fence; };
struct run { uint64_t offset; const uint64_t *content; uint64_t bytes; };
struct region {
    const char *name; uint64_t va, bytes; enum place place; const struct run *runs; uint64_t run_count;
    struct submission load;
};
struct output {
    const char *name; int is_float; uint64_t va; const uint64_t *want; uint64_t bytes, last_dimension;
    struct submission fetch;
};
struct name { uint64_t va, bytes; const char *text; };

/* CASE */

#define COUNT(array) (sizeof array / sizeof array[0])
#define PAGE 4096ull
#define RING_BYTES (1ull << 16)
#define OWN_VA 0x20000000000ull /* of what the recorded packets do not name: ring, pointers */
#define NODES "/sys/devices/virtual/kfd/kfd/topology/nodes"
#define MAX_VIEWS 256

static void unusable(const char *what, const char *detail)
{
    printf("UNUSABLE  %s: %s\n", what, detail);
    fflush(stdout);
    _exit(2);
}

static void failed(const char *what)
{
    char why[256];
    snprintf(why, sizeof why, "%s; wanted an AMD GPU, amdgpu loaded, and the right to open /dev/kfd and "
             "/dev/dri/renderD* (groups render, video)", strerror(errno));
    unusable(what, why);
}

static uint64_t pages(uint64_t bytes) { return (bytes + PAGE - 1) & ~(PAGE - 1); }

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* The system: this machine's, or ZINC-RT's simulated device behind the socket $ZINC_SIM_SOCKET
 * (docs/simulated-device.md there has the protocol). */

static int sim = -1;
struct pointed { int at; void *content; uint32_t bytes; }; /* where a pointer stands in a struct, and its target */

static void exactly(void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t came = recv(sim, (char *)to + done, bytes - done, 0);
        if (came <= 0)
            unusable("the simulated device", "has ended");
        done += (size_t)came;
    }
}

/* One request, one answer: its JSON (to be freed), its body, the one fd that may come with it. */
static char *ask(const char *header, const struct iovec *body, int parts, void *answer, size_t room, int *fd)
{
    unsigned char head[13];
    uint32_t text_bytes = (uint32_t)strlen(header);
    uint64_t body_bytes = 0;
    for (int i = 0; i < parts; i++)
        body_bytes += body[i].iov_len;
    memcpy(head, &text_bytes, 4);
    memcpy(head + 4, &body_bytes, 8);
    head[12] = 0;
    if (send(sim, head, 13, MSG_NOSIGNAL) != 13 || send(sim, header, text_bytes, MSG_NOSIGNAL) != (ssize_t)text_bytes)
        unusable("the simulated device", "has ended");
    for (int i = 0; i < parts; i++)
        if (send(sim, body[i].iov_base, body[i].iov_len, MSG_NOSIGNAL) != (ssize_t)body[i].iov_len)
            unusable("the simulated device", "has ended");
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    struct iovec into = { head, 1 }; /* fds ride on the first byte */
    struct msghdr message = { .msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    if (recvmsg(sim, &message, 0) != 1)
        unusable("the simulated device", "has ended");
    exactly(head + 1, 12);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (fd && rights)
        memcpy(fd, CMSG_DATA(rights), sizeof *fd);
    memcpy(&text_bytes, head, 4);
    memcpy(&body_bytes, head + 4, 8);
    char *text = malloc(text_bytes + 1ull);
    char *came = malloc(body_bytes + 1);
    if (!text || !came)
        unusable("malloc", "no memory");
    exactly(text, text_bytes);
    text[text_bytes] = 0;
    exactly(came, body_bytes);
    came[body_bytes] = 0;
    if (answer)
        memcpy(answer, came, body_bytes < room ? body_bytes : room);
    free(came);
    return text;
}

static int64_t number(const char *json, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(json, quoted);
    return at ? strtoll(at + strlen(quoted), 0, 10) : 0;
}

static int64_t asked(const char *header, const char *key, void *answer, size_t room, int *fd)
{
    char *json = ask(header, 0, 0, answer, room, fd);
    int64_t value = number(json, key);
    errno = (int)number(json, "errno");
    free(json);
    return errno ? -1 : value;
}

static int sys_open(const char *path)
{
    char header[256];
    if (sim < 0)
        return open(path, O_RDWR | O_CLOEXEC);
    snprintf(header, sizeof header, "{\"op\": \"open\", \"path\": \"%s\", \"flags\": %d}", path, O_RDWR);
    return (int)asked(header, "fd", 0, 0, 0);
}

static int sys_ioctl(int fd, uint32_t request, void *argument, struct pointed *pointed, int count)
{
    uint32_t bytes = request >> 16 & 0x3fff;
    int code;
    for (int i = 0; i < count; i++) {
        uint64_t address = sim < 0 ? (uint64_t)(uintptr_t)pointed[i].content : (uint64_t)(i + 1) << 20;
        memcpy((char *)argument + pointed[i].at, &address, 8);
    }
    if (sim < 0) {
        do
            code = ioctl(fd, request, argument);
        while (code < 0 && errno == EINTR);
        return code;
    }
    char header[512], arrays[256] = "", answer[4096];
    struct iovec body[4] = { { argument, bytes } };
    for (int i = 0; i < count; i++) {
        size_t used = strlen(arrays);
        snprintf(arrays + used, sizeof arrays - used, "%s[%d, %u, true]", i ? ", " : "", (i + 1) << 20, pointed[i].bytes);
        body[i + 1] = (struct iovec){ pointed[i].content, pointed[i].bytes };
    }
    snprintf(header, sizeof header, "{\"op\": \"ioctl\", \"fd\": %d, \"request\": %u, \"size\": %u, \"arrays\": [%s]}",
             fd, request, bytes, arrays);
    char *json = ask(header, body, count + 1, answer, sizeof answer, 0);
    memcpy(argument, answer, bytes);
    const char *at = strstr(json, "\"written\": [");
    size_t from = bytes;
    for (at = at ? at + 12 : 0; at && *at == '['; at = strchr(at, ']') + 1 + 2 * (strchr(at, ']')[1] == ',')) {
        char *end;
        uint64_t address = strtoull(at + 1, &end, 10), size = strtoull(end + 1, 0, 10);
        memcpy((char *)pointed[(address >> 20) - 1].content + (address & 0xfffff), answer + from, size);
        from += size;
    }
    errno = (int)number(json, "errno");
    free(json);
    return errno ? -1 : 0;
}

static void *sys_map(int fd, uint64_t bytes, uint64_t offset)
{
    char header[256];
    int shared = -1;
    if (sim < 0)
        return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    snprintf(header, sizeof header, "{\"op\": \"mmap\", \"fd\": %d, \"size\": %llu, \"offset\": %llu}", fd,
             (unsigned long long)bytes, (unsigned long long)offset);
    int64_t start = asked(header, "offset", 0, 0, &shared);
    void *mapped = start < 0 ? MAP_FAILED : mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared, start);
    close(shared);
    return mapped;
}

/* A whole text file, "" where there is none. */
static void sys_read(const char *path, char *text, size_t room)
{
    char header[256];
    memset(text, 0, room);
    if (sim >= 0) {
        snprintf(header, sizeof header, "{\"op\": \"read_file\", \"path\": \"%s\"}", path);
        asked(header, "errno", text, room - 1, 0);
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t came = fd < 0 ? 0 : read(fd, text, room - 1);
    text[came < 0 ? 0 : came] = 0;
    if (fd >= 0)
        close(fd);
}

static int known_findings; /* of earlier programs on the same device */

/* Findings so far; the first new ones are printed. Hardware has none. */
static int findings(int known)
{
    if (sim < 0)
        return 0;
    char *json = ask("{\"op\": \"findings\"}", 0, 0, 0, 0, 0);
    int count = 0;
    for (char *at = json; (at = strstr(at, "\"rule\": \"")) != 0; count++) {
        char *said = strstr(at += 9, "\"sentence\": \"");
        if (said && count >= known && count < known + 8 && known >= 0)
            printf("found by the simulated device: %.*s: %.*s\n", (int)strcspn(at, "\""), at,
                   (int)strcspn(said + 13, "\""), said + 13);
    }
    free(json);
    return count;
}

/* The GPU */

static int render = -1;
static uint32_t gpu_id;
static char properties[8192];
static uint64_t next_va = OWN_VA, put_dw;
static volatile uint32_t *ring;
static volatile uint64_t *wptr, *doorbell;
static struct { uint64_t va, bytes; char *host; } views[MAX_VIEWS];
static int view_count;

static uint64_t property(const char *name)
{
    size_t length = strlen(name);
    for (const char *at = properties; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : 0)
        if (!strncmp(at, name, length) && at[length] == ' ')
            return strtoull(at + length, 0, 10);
    return 0;
}

static char *host_of(uint64_t va)
{
    for (int i = 0; i < view_count; i++)
        if (views[i].va <= va && va < views[i].va + views[i].bytes)
            return views[i].host + (va - views[i].va);
    return 0;
}

static void *mapped(int fd, uint64_t bytes, uint64_t offset, const char *name)
{
    void *host = sys_map(fd, bytes, offset);
    if (host == MAP_FAILED)
        failed(name);
    return host;
}

static void *keep_view(uint64_t va, uint64_t bytes, void *host)
{
    if (view_count == MAX_VIEWS)
        unusable("views", "too many buffers");
    views[view_count].va = va;
    views[view_count].bytes = bytes;
    views[view_count++].host = host;
    return host;
}

static const char *near_name(uint64_t va, uint64_t *distance)
{
    const struct name *best = 0;
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].va <= va && (!best || names[i].va > best->va || (names[i].va == best->va && names[i].bytes < best->bytes)))
            best = &names[i];
    *distance = best ? va - best->va : 0;
    return best ? best->text : "below every buffer";
}

static void *alloc(const char *name, uint64_t va, uint64_t bytes, enum place place);

/* VRAM that the host maps may be refused, where the BAR is small: host memory then. */
static void *small_bar(const char *name, uint64_t va, uint64_t bytes)
{
    printf("note      %s: no VRAM that the host maps (%s), host memory instead\n", name, strerror(errno));
    return alloc(name, va, bytes, GTT);
}

static void say_fault(uint64_t va, const char *how)
{
    uint64_t distance;
    const char *name = near_name(va, &distance);
    char text[512];
    snprintf(text, sizeof text, "GPU page fault at %#llx (%s), %s+%#llx", (unsigned long long)va, how, name,
             (unsigned long long)distance);
    unusable("a submission does not end", text);
}

#ifdef TIER_T1

/* /dev/kfd: include/uapi/linux/kfd_ioctl.h, spelled out so that any header version will do */
struct kfd_alloc { uint64_t va, size, handle, mmap_offset; uint32_t gpu_id, flags; };
struct kfd_map { uint64_t handle, ids; uint32_t devices, success; };
struct kfd_queue {
    uint64_t ring, write_at, read_at, doorbell_offset;
    uint32_t ring_bytes, gpu_id, type, percentage, priority, queue_id;
    uint64_t eop, eop_bytes, save_area;
    uint32_t save_bytes, control_bytes, engine, metadata_bytes;
};
struct kfd_event { uint64_t page; uint32_t trigger, type, auto_reset, node, id, slot; };
struct kfd_event_data { uint32_t absent, read_only, no_execute, imprecise; uint64_t va; uint32_t gpu, error; uint64_t more; uint32_t id, pad; };
struct kfd_wait { uint64_t events; uint32_t count, all, timeout_ms, result; };
static uint32_t memory_event;
static int kfd = -1;

static void *alloc(const char *name, uint64_t va, uint64_t bytes, enum place place)
{
    static const uint32_t places[] = { 1u, 1u | 1u << 29, 2u | 1u << 26 | 1u << 25, 2u | 1u << 26 };
    struct kfd_alloc request = { va, bytes, 0, 0, gpu_id, places[place] | 1u << 31 | 1u << 30 | 1u << 28 };
    if (sys_ioctl(kfd, 0xc0284b16, &request, 0, 0)) { /* ALLOC_MEMORY_OF_GPU */
        if (place == VRAM_BAR && (errno == EINVAL || errno == ENOMEM))
            return small_bar(name, va, bytes);
        failed(name);
    }
    struct kfd_map map = { request.handle, 0, 1, 0 };
    struct pointed ids = { 8, &gpu_id, 4 };
    if (sys_ioctl(kfd, 0xc0184b18, &map, &ids, 1)) /* MAP_MEMORY_TO_GPU */
        failed(name);
    return place >= GTT ? keep_view(va, bytes, mapped(render, bytes, request.mmap_offset, name)) : 0;
}

static void open_gpu(void)
{
    if ((kfd = sys_open("/dev/kfd")) < 0)
        failed("/dev/kfd");
    uint32_t acquire[2] = { (uint32_t)render, gpu_id };
    if (sys_ioctl(kfd, 0x40084b15, acquire, 0, 0)) /* ACQUIRE_VM */
        failed("ACQUIRE_VM");
    struct kfd_event event = { .type = 8 }; /* MEMORY */
    if (sys_ioctl(kfd, 0xc0204b08, &event, 0, 0)) /* CREATE_EVENT */
        failed("CREATE_EVENT");
    memory_event = event.id;
}

static void look_for_fault(void)
{
    struct kfd_event_data data = { .id = memory_event };
    struct kfd_wait wait = { .count = 1 };
    struct pointed events = { 0, &data, sizeof data };
    if (sys_ioctl(kfd, 0xc0184b0c, &wait, &events, 1) == 0 && wait.result == 0) /* WAIT_EVENTS, without waiting */
        say_fault(data.va, data.absent ? "not present" : data.read_only ? "read only" : data.no_execute ? "no execute" : "no reason given");
}

/* Control stack, save area, whole buffer, to the byte: kfd_queue_ctx_save_restore_size in amdkfd/kfd_queue.c */
static void make_queue(uint64_t ring_va, uint64_t read_at, uint64_t write_at)
{
    uint64_t instances = property("num_xcc") ? property("num_xcc") : 1;
    uint64_t units = property("simd_count") / property("simd_per_cu") / instances, version = property("gfx_target_version");
    uint64_t control = property("ctl_stack_size"), saved = property("cwsr_size");
    if (!control || !saved) {
        int large = version == 110000 || version == 110001 || version == 120000 || version == 120001;
        control = pages(40 + units * 32 * 12 + 8);
        saved = control + pages(units * ((large ? 0x60000u : 0x40000u) + 0x4000u + 0x10000u + 0x1000u));
    }
    uint64_t whole = pages((saved + ((units * 32 * 32 + 63) & ~63ull)) * instances);
    uint64_t eop = next_va, area = next_va + (2ull << 20);
    alloc("eop", eop, PAGE, VRAM);
    alloc("save area", area, whole, GTT);
    struct kfd_queue queue = {
        .ring = ring_va, .write_at = write_at, .read_at = read_at, .ring_bytes = RING_BYTES, .gpu_id = gpu_id,
        .percentage = 100, .priority = 7, .eop = eop, .eop_bytes = PAGE, .save_area = area,
        .save_bytes = (uint32_t)saved, .control_bytes = (uint32_t)control,
    };
    if (sys_ioctl(kfd, 0xc0604b02, &queue, 0, 0)) /* CREATE_QUEUE */
        failed("CREATE_QUEUE");
    uint64_t slice = 0x2000; /* of a process, amdkfd/kfd_doorbell.c */
    char *doorbells = mapped(kfd, slice, queue.doorbell_offset & ~(slice - 1), "doorbell");
    doorbell = (volatile uint64_t *)(void *)(doorbells + (queue.doorbell_offset & (slice - 1)));
}

#else

/* User queues of the render node: include/uapi/drm/amdgpu_drm.h */
struct gem_create { uint64_t bytes, alignment, domains, flags; };
struct gem_va { uint32_t handle, pad, operation, flags; uint64_t va, offset, bytes, point; uint32_t timeline, count; uint64_t handles; };
struct timeline_wait { uint64_t handles, points; int64_t deadline_ns; uint32_t count, flags, first, pad; uint64_t hint_ns; };
struct userq { uint32_t op, id, ip, doorbell, doorbell_offset, flags; uint64_t ring, bytes, rptr, wptr, mqd, mqd_bytes; };
struct info { uint64_t answer; uint32_t bytes, query, kind, instance; uint64_t pad; };
struct fault { uint64_t va; uint32_t status, hub; };
static uint32_t timeline;
static uint64_t point;
static struct fault before;

static int info(uint32_t query, uint32_t kind, void *answer, uint32_t bytes)
{
    struct info request = { 0, bytes, query, kind, 0, 0 };
    struct pointed to = { 0, answer, bytes };
    return sys_ioctl(render, 0x40206445, &request, &to, 1);
}

static uint32_t gem(const char *name, uint64_t bytes, uint64_t domain, uint64_t flags)
{
    struct gem_create create = { bytes, PAGE, domain, flags };
    if (sys_ioctl(render, 0xc0206440, &create, 0, 0)) { /* GEM_CREATE: the handle takes the first field's place */
        if (domain == 4 && flags & 1 && (errno == EINVAL || errno == ENOMEM))
            return 0;
        failed(name);
    }
    return (uint32_t)create.bytes;
}

static void *gem_view(const char *name, uint32_t handle, uint64_t bytes)
{
    uint64_t offset = handle;
    if (sys_ioctl(render, 0xc0086441, &offset, 0, 0)) /* GEM_MMAP */
        failed(name);
    return mapped(render, bytes, offset, name);
}

static void *alloc(const char *name, uint64_t va, uint64_t bytes, enum place place)
{
    static const struct { uint64_t domain, flags; uint32_t memory_type; } places[] = {
        { 4, 2 | 8, 0 }, { 4, 1 | 8, 0 }, { 2, 1 | 0x4000, 4 << 5 }, { 2, 1 | 0x2000, 0 },
    };
    uint32_t handle = gem(name, bytes, places[place].domain, places[place].flags);
    if (!handle)
        return small_bar(name, va, bytes);
    struct gem_va request = { handle, 0, 1, 2 | 4 | 8 | places[place].memory_type, va, 0, bytes, ++point, timeline, 0, 0 };
    if (sys_ioctl(render, 0x40406448, &request, 0, 0)) /* GEM_VA: MAP */
        failed(name);
    struct timeline_wait wait = { .deadline_ns = (int64_t)(now_ns() + 10000000000ull), .count = 1, .flags = 3 };
    struct pointed arrays[] = { { 0, &timeline, 4 }, { 8, &point, 8 } };
    if (sys_ioctl(render, 0xc03064ca, &wait, arrays, 2)) /* SYNCOBJ_TIMELINE_WAIT: the page tables have it */
        failed(name);
    return place >= GTT ? keep_view(va, bytes, gem_view(name, handle, bytes)) : 0;
}

static void open_gpu(void)
{
    uint32_t made[2] = { 0, 0 }, device[112] = { 0 };
    if (info(0x16, 0, device, sizeof device) || !(device[109] & 2)) /* DEV_INFO, userq_ip_mask: bit 1, compute */
        unusable("this kernel offers no user queues for compute", "Linux 6.16 or newer, amdgpu.user_queue=1, firmware");
    if (sys_ioctl(render, 0xc00864bf, made, 0, 0)) /* SYNCOBJ_CREATE */
        failed("SYNCOBJ_CREATE");
    timeline = made[0];
    info(0x23, 0, &before, sizeof before); /* GPUVM_FAULT: the kernel keeps the last one for good */
}

static void look_for_fault(void)
{
    struct fault last = { 0, 0, 0 };
    char status[32];
    if (info(0x23, 0, &last, sizeof last) == 0 && (last.va != before.va || last.status != before.status)) {
        snprintf(status, sizeof status, "status %#x", last.status);
        say_fault(last.va, status);
    }
}

static void make_queue(uint64_t ring_va, uint64_t read_at, uint64_t write_at)
{
    uint32_t areas[4] = { 0, 0, 0, 0 };
    uint64_t eop = next_va, eop_bytes = 2048; /* kernels up to 7.0 do not say */
    if (info(0x24, 1, areas, sizeof areas) == 0 && areas[0]) /* UQ_FW_AREAS, compute */
        eop_bytes = areas[0];
    alloc("eop", eop, pages(eop_bytes), VRAM);
    uint32_t handle = gem("doorbell", PAGE, 0x40, 0);
    doorbell = (volatile uint64_t *)gem_view("doorbell", handle, PAGE) + 4;
    struct userq queue = { 1, 0, 1, handle, 4, 0, ring_va, RING_BYTES, read_at, write_at, 0, 8 };
    struct pointed mqd = { 56, &eop, 8 };
    if (sys_ioctl(render, 0xc0486456, &queue, &mqd, 1)) /* USERQ: CREATE */
        failed("USERQ create");
}

#endif

static void find_gpu(void)
{
    char path[128], text[64];
    for (int node = 0; node < 64; node++) {
        snprintf(path, sizeof path, NODES "/%d/gpu_id", node);
        sys_read(path, text, sizeof text);
        gpu_id = (uint32_t)strtoul(text, 0, 10);
        if (!gpu_id)
            continue;
        snprintf(path, sizeof path, NODES "/%d/properties", node);
        sys_read(path, properties, sizeof properties);
        if (property("gfx_target_version") != GFX_TARGET_VERSION)
            continue;
        snprintf(path, sizeof path, "/dev/dri/renderD%d", (int)property("drm_render_minor"));
        if ((render = sys_open(path)) < 0)
            failed(path);
        return;
    }
    unusable(NODES, "no " CHIP " is listed there; wanted that GPU, with amdgpu loaded");
}

static void submit(const char *what, const struct submission *each, double timeout_seconds)
{
    volatile uint64_t *reached = (volatile uint64_t *)(void *)host_of(each->fence_va);
    for (uint64_t i = 0; i < each->count; i++)
        ring[(put_dw + i) % (RING_BYTES / 4)] = each->words[i];
    put_dw += each->count;
    __sync_synchronize();
    *wptr = put_dw;
    __sync_synchronize();
    *doorbell = put_dw;
    uint64_t began = now_ns(), asked_at = 0;
    while (*reached < each->fence) {
        struct timespec pause = { 0, 100000 };
        uint64_t now = now_ns();
        if (now - asked_at > 100000000ull) {
            asked_at = now;
            look_for_fault();
        }
        if ((double)(now - began) > timeout_seconds * 1e9) {
            char text[128];
            findings(known_findings);
            snprintf(text, sizeof text, "%s does not end within %g s: its fence has %llu, wanted %llu", what,
                     timeout_seconds, (unsigned long long)*reached, (unsigned long long)each->fence);
            unusable(TITLE, text);
        }
        nanosleep(&pause, 0);
    }
}

static int differs(const struct output *each, const void *got)
{
    const uint32_t *want = (const uint32_t *)(const void *)each->want, *have = got;
    uint64_t bad = 0, first = 0, count = each->bytes / 4;
    for (uint64_t i = 0; i < count; i++)
        if (want[i] != have[i] && !bad++)
            first = i;
    if (!bad) {
        printf("bit-exact %s, %llu elements\n", each->name, (unsigned long long)count);
        return 0;
    }
    printf("differs   %s: %llu of %llu elements, first row %llu, column %llu: ", each->name, (unsigned long long)bad,
           (unsigned long long)count, (unsigned long long)(first / each->last_dimension),
           (unsigned long long)(first % each->last_dimension));
    float wanted, found;
    memcpy(&wanted, &want[first], 4);
    memcpy(&found, &have[first], 4);
    if (each->is_float)
        printf("wanted %.9g (%#010x), got %.9g (%#010x)\n", (double)wanted, want[first], (double)found, have[first]);
    else
        printf("wanted %d, got %d\n", (int32_t)want[first], (int32_t)have[first]);
    return 1;
}

int main(int count, char **arguments)
{
    double timeout_seconds = count > 1 ? atof(arguments[1]) : 30.0;
    const char *path = getenv("ZINC_SIM_SOCKET");
    if (count > 2 || timeout_seconds <= 0) {
        fprintf(stderr, "usage: %s [SECONDS]   how long a submission may take (default 30)\n", arguments[0]);
        return 2;
    }
    if (path && *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
        sim = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(sim, (struct sockaddr *)&address, sizeof address))
            failed(path);
        free(ask("{\"version\": 1}", 0, 0, 0, 0, 0));
    }
    known_findings = findings(-1);
    find_gpu();
    open_gpu();
    for (size_t i = 0; i < COUNT(regions); i++)
        alloc(regions[i].name, regions[i].va, regions[i].bytes, regions[i].place);
    char *staging = alloc("staging", STAGING_VA, STAGING_BYTES, GTT);
    alloc("fence", FENCE_VA, PAGE, GTT);
    uint64_t ring_va = next_va, read_at = next_va + (2ull << 20), write_at = next_va + (4ull << 20);
    next_va += 6ull << 20;
    ring = alloc("ring", ring_va, RING_BYTES, GTT);
    alloc("rptr", read_at, PAGE, GTT);
    wptr = alloc("wptr", write_at, PAGE, GTT);
    make_queue(ring_va, read_at, write_at);
    for (size_t i = 0; i < COUNT(regions); i++) {
        const struct region *each = &regions[i];
        char *to = host_of(each->va) ? host_of(each->va) : staging;
        memset(to, 0, each->bytes);
        for (uint64_t r = 0; r < each->run_count; r++)
            memcpy(to + each->runs[r].offset, each->runs[r].content, each->runs[r].bytes);
        if (each->load.count && to == staging)
            submit(each->name, &each->load, timeout_seconds);
    }
    submit("the recorded submission", &submission, timeout_seconds);
    int found = findings(known_findings) - known_findings, differing = 0;
    for (size_t i = 0; i < COUNT(outputs); i++) {
        if (outputs[i].fetch.count)
            submit(outputs[i].name, &outputs[i].fetch, timeout_seconds);
        differing += differs(&outputs[i], outputs[i].fetch.count ? staging : host_of(outputs[i].va));
    }
    if (differing || found > 0)
        printf("DIFFERS   %s: %d of %d outputs differ, %d findings\n", TITLE, differing, (int)COUNT(outputs), found);
    else
        printf("BIT-EXACT %s: %d outputs as expected\n", TITLE, (int)COUNT(outputs));
    fflush(stdout);
    _exit(differing || found > 0); /* a GPU that hangs must not hold the process's end */
}
