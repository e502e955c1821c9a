#!/usr/bin/env python3
"""What each turn of a conversation costs: runs `graft chat` over some messages and prints a table in Markdown, as docs/chat.md has it.

  scripts/chat_cost.py [MODEL] [--turns 20] [-- flags of graft chat]
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / ".data" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MESSAGES = (
    "Hello! Who are you?", "What is the capital of France?", "And of Italy?", "Which of the two is larger?", "Name a river there.",
    "How long is it?", "Tell me about bridges.", "Which one is the oldest?", "Thank you. What is a prime number?", "Is 51 one?",
    "Write a line about rain.", "Now one about snow.", "Which do you prefer?", "What rhymes with tree?", "Make a short poem of it.",
    "What did I ask first?", "Give me a number from 1 to 10.", "Double it.", "What is a graft?", "Goodbye!",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MODEL, help="the model (default: SmolLM2 in .data)")
    parser.add_argument("--turns", type=int, default=20, help="how many messages")
    parser.add_argument("--graft", default=ROOT / "build" / "graft")
    options, flags = parser.parse_known_args()
    messages = [MESSAGES[turn % len(MESSAGES)] for turn in range(options.turns)]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [options.graft, "chat", options.model, "--greedy", "--max-new-tokens", "40", "--report", report, *(flag for flag in flags if flag != "--")]
        subprocess.run(command, input="".join(message + "\n" for message in messages), text=True, check=True, stdout=subprocess.DEVNULL)
        turns = json.loads(report.read_text())["turns"]
    print("| turn | tokens of the conversation | read | first token after | new tokens | seconds |")
    print("|---|---|---|---|---|---|")
    for number, turn in enumerate(turns, 1):
        print(f"| {number} | {turn['conversation_tokens']} | {turn['read_tokens']} | {turn['first_token_s']:.2f} s | {turn['new_tokens']} | {turn['seconds']:.2f} |")


if __name__ == "__main__":
    main()
