// The paged cache. A source that includes it has in its arguments U32 table, i32 [slots][pages], and the constants
// page_shift (log2 of a page's tokens) and pages (of a slot).
#ifndef PAGING_GLSL
#define PAGING_GLSL

const uint COPY_COLUMNS = 512u;  // of keys or values to a workgroup: table.py's TUNING.copy_columns

// The cache row of a slot's position.
uint cache_row(uint slot, uint position) {
    uint page = args.table.v[slot * args.pages + (position >> args.page_shift)];
    return (page << args.page_shift) + (position & ((1u << args.page_shift) - 1u));
}

// A row of a cache f32 [rows][columns] by its address: a cache may have more elements than 32 bits count.
uint64_t row_address(uint64_t cache, uint row, uint columns) { return cache + 4ul * (uint64_t(row) * columns); }

#endif
