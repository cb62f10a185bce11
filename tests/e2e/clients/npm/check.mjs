// A chat and a stream through the npm package `openai`. Run by hand beside a server:
//
//   pagoda serve smollm2 &
//   cd tests/e2e/clients/npm && npm install --no-package-lock && npm run check
//
// PAGODA_URL names another server than http://127.0.0.1:8000/v1.

import OpenAI from "openai";
import process from "node:process";

const client = new OpenAI({
  baseURL: process.env.PAGODA_URL ?? "http://127.0.0.1:8000/v1",
  apiKey: process.env.PAGODA_API_KEY ?? "none",
});
const request = {
  model: "smollm2",
  messages: [{ role: "user", content: "What is the capital of France?" }],
  temperature: 0,
  max_tokens: 32,
};

const answer = await client.chat.completions.create(request);
console.log("chat:  ", answer.choices[0].message.content, JSON.stringify(answer.usage));

let text = "";
let chunks = 0;
for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  chunks += 1;
}
console.log("stream:", text, `(${chunks} chunks)`);

const runner = client.chat.completions.stream(request);
console.log("helper:", await runner.finalContent());

const refused = await client.chat.completions.create({ ...request, temperature: -1 }).catch((error) => error);
console.log("error: ", refused.status, refused.message);

const isRight = [answer.choices[0].message.content, text].every((found) => found.includes("Paris")) && refused.status === 400;
process.exit(isRight ? 0 : 1);
