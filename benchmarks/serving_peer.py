"""The peer of serving.py: a server of transformers' generate with static batches, on Starlette and
uvicorn.

    python benchmarks/serving_peer.py --model=DIR --port=8000 [--max_source_length=4096]

A thread takes the requests that wait in their order, as many as a batch holds, pads them to the
longest, and decodes them together; the next batch begins when the last summary of this one is
written. It waits --wait seconds for a batch to fill. Texts are tokenized by the tokenizer of the
model directory in longsum_jax, so that both servers read the same ids.

    GET  /health/ready   200
    POST /batch_size     {"batch_size": 4}: for the batches from now on
    POST /v1/summaries   {"text": "..."} -> {"summaries": [{"summary": "..."}]}
"""

import argparse
import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from transformers import AutoModelForSeq2SeqLM

from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer


class Job(NamedTuple):
    """A document as ids, and its summary."""

    ids: list[int]
    future: "Future[str]"


class Batches:
    """Decodes the requests that wait, a batch at a time, in a thread of its own.

    Args:
        model: model of transformers.
        tokenizer: its tokenizer.
        wait: seconds for a batch to fill.
    """

    def __init__(self, model: torch.nn.Module, tokenizer: Tokenizer, wait: float) -> None:
        self.batch_size = 1
        self._model, self._tokenizer, self._wait = model, tokenizer, wait
        ends = model.generation_config.eos_token_id
        self._ends = {ends} if isinstance(ends, int) else set(ends)
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, ids: list[int]) -> "Future[str]":
        """Queues a document."""
        job = Job(ids, Future())
        self._jobs.put(job)
        return job.future

    def _run(self) -> None:
        while True:
            jobs = self._next_jobs()
            try:
                summaries = self._decode([job.ids for job in jobs])
            except Exception as error:
                for job in jobs:
                    job.future.set_exception(error)
                continue
            for job, summary in zip(jobs, summaries, strict=True):
                job.future.set_result(summary)

    def _next_jobs(self) -> list[Job]:
        jobs = [self._jobs.get()]
        end = time.monotonic() + self._wait
        while len(jobs) < self.batch_size:
            try:
                jobs.append(self._jobs.get(timeout=max(end - time.monotonic(), 0)))
            except queue.Empty:
                break
        return jobs

    def _decode(self, documents: Sequence[Sequence[int]]) -> list[str]:
        pad = self._model.config.pad_token_id
        ids = torch.full((len(documents), max(map(len, documents))), pad)
        mask = torch.zeros_like(ids)
        for row, document in enumerate(documents):
            ids[row, : len(document)] = torch.tensor(document)
            mask[row, : len(document)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._model.config.model_type == "led":  # whose first token is global
            inputs["global_attention_mask"] = torch.zeros_like(ids)
            inputs["global_attention_mask"][:, 0] = 1
        with torch.inference_mode():
            rows = self._model.generate(**inputs, pad_token_id=pad).tolist()
        return [self._tokenizer.decode(self._until_end(row[1:])) for row in rows]

    def _until_end(self, ids: Sequence[int]) -> Sequence[int]:
        length = next((i + 1 for i, token in enumerate(ids) if token in self._ends), len(ids))
        return ids[:length]


def make_app(batches: Batches, tokenizer: Tokenizer, limit: int) -> Starlette:
    """Returns the application."""

    async def ready(request: Request) -> Response:
        return PlainTextResponse("ready\n")

    async def set_batch_size(request: Request) -> Response:
        batches.batch_size = (await request.json())["batch_size"]
        return JSONResponse({})

    async def summaries(request: Request) -> Response:
        text = (await request.json())["text"]
        ids = await asyncio.to_thread(
            lambda: tokenizer.add_special_tokens(tokenizer.encode(text), limit)
        )
        summary = await asyncio.wrap_future(batches.submit(ids))
        return JSONResponse({"summaries": [{"summary": summary}]})

    return Starlette(
        routes=[
            Route("/health/ready", ready),
            Route("/batch_size", set_batch_size, methods=["POST"]),
            Route("/v1/summaries", summaries, methods=["POST"]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="directory")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument("--max_source_length", type=int, default=4096, help="default: 4,096")
    parser.add_argument("--wait", type=float, default=0.05, help="seconds; default: 0.05")
    args = parser.parse_args()
    model = AutoModelForSeq2SeqLM.from_pretrained(args.model).eval()
    tokenizer = load_tokenizer(args.model, vocab_size=model.config.vocab_size)
    batches = Batches(model, tokenizer, args.wait)
    app = make_app(batches, tokenizer, args.max_source_length)
    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
