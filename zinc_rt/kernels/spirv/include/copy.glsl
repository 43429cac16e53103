// Copies by rows of columns: a workgroup takes 512 of them.
const uint COPY_COLUMNS = 512u;  // table.py's TUNING.copy_columns
