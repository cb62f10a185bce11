// POST /v1/chat/completions as a stream of events.

export class ServerError extends Error {
  constructor(error, status, retryAfter) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? "";
    this.retryAfter = retryAfter;
  }
}

/** Whole events out of a body that arrives in any pieces, and when the last piece of each came. */
export async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const time = performance.now();
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) yield { data: event.slice(6), time };
  }
}

/** The chunks of an answer, and when they came. It ends at [DONE]; anything else is an error, so half an answer never
 * looks whole. */
export async function* chatChunks(request, signal) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) {
    const content = await response.json().catch(() => null);
    throw new ServerError(content?.error, response.status, response.headers.get("retry-after"));
  }
  for await (const { data, time } of eventsOf(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error, 0, null);
    yield { chunk, time };
  }
  throw new ServerError({ message: "the connection ended before the answer did" }, 0, null);
}
