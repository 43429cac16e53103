// Which tokens of a step are a sequence's: they are neighbours, since a step's sequence numbers never fall.
#ifndef SEQUENCE_GLSL
#define SEQUENCE_GLSL

// The first of `tokens` tokens whose number is `wanted` or higher, or `tokens`: a binary search.
uint first_token(U32 numbers, uint wanted, uint tokens) {
    uint first = 0u, end = tokens;
    while (first < end) {
        uint middle = (first + end) >> 1;
        bool before = numbers.v[middle] < wanted;
        first = before ? middle + 1u : first;
        end = before ? end : middle;
    }
    return first;
}

// The row of a state that is a sequence's: where there are no ids, its number.
#define state_row(ids, sequence) (present(ids) ? (ids).v[sequence] : (sequence))

#endif
