// The paged cache. A source that includes it has in its arguments U32 table, i32 [slots][pages], and the constants
// page_shift (log2 of a page's tokens) and pages (of a slot).
#ifndef PAGING_GLSL
#define PAGING_GLSL

// The cache row of a slot's position.
uint cache_row(uint slot, uint position) {
    uint page = args.table.v[slot * args.pages + (position >> args.page_shift)];
    return (page << args.page_shift) + (position & ((1u << args.page_shift) - 1u));
}

#endif
