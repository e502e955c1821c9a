// Ctrl-C as something to be asked for, where it shall not end the program.
#pragma once

namespace graft::cli {

/// From here on Ctrl-C is remembered, and does nothing else.
void catch_interrupts();
/// Whether there was one since this was asked the last time.
bool interrupted();
/// Waits for the standard input to have something: true, or for Ctrl-C: false, and it is forgotten.
bool wait_for_input();

}  // namespace graft::cli
