import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embed, embedMany, generateObject, generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai';
import { faults, patience, pixel, state, until } from './support.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const relay = createOpenAICompatible({
  name: 'relay', baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY, includeUsage: true, supportsStructuredOutputs: true,
});

test('generates text', patience, async () => {
  const { text, usage, finishReason, response } = await generateText({ model: relay('chat'), prompt: 'Say something.', maxOutputTokens: 12 });
  assert.ok(text.length > 0);
  assert.equal(finishReason, 'length');
  assert.equal(usage.outputTokens, 12);
  assert.equal(response.modelId, 'chat');
});

test('streams text', patience, async () => {
  const whole = await generateText({ model: relay('chat'), prompt: 'Say something.', maxOutputTokens: 12 });
  const stream = streamText({ model: relay('chat'), prompt: 'Say something.', maxOutputTokens: 12 });
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, whole.text);
  assert.equal((await stream.usage).outputTokens, 12);
  // As it comes it does not ask for the usage.
  const plain = createOpenAICompatible({ name: 'relay', baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
  assert.equal(await streamText({ model: plain('chat'), prompt: 'Say something.', maxOutputTokens: 12 }).text, whole.text);
});

test('leaves in the middle, and the engine is free', patience, async () => {
  const abort = new AbortController();
  const stream = streamText({ model: relay('slow'), prompt: 'Say something.', maxOutputTokens: 2000, abortSignal: abort.signal });
  let seen = 0;
  for await (const _ of stream.textStream) if (++seen === 3) abort.abort();
  await until('the only slot is free', async () => (await state('slow')).active === 0, 2000);
});

const weather = (places) => ({
  weather: tool({
    description: 'The weather of a place',
    inputSchema: jsonSchema({ type: 'object', properties: { place: { type: 'string' } }, required: ['place'], additionalProperties: false }),
    execute: async ({ place }) => { places.push(place); return 'sunny'; },
  }),
});

test('runs a loop of tools', patience, async () => {
  for (const run of [generateText, streamText]) {
    const places = [];
    const done = await run({ model: relay('chat'), prompt: 'What is the weather in Rome and Oslo?', tools: weather(places), stopWhen: isStepCount(3) });
    assert.equal(await done.text, 'It is sunny in both.');
    assert.equal((await done.steps).length, 2);
    assert.deepEqual(places.sort(), ['Oslo', 'Rome']);
  }
  const places = [];
  const forced = await generateText({ model: relay('chat'), prompt: 'Say something.', tools: weather(places), toolChoice: { type: 'tool', toolName: 'weather' } });
  assert.equal(forced.toolCalls[0].toolName, 'weather');
});

test('makes objects', patience, async () => {
  const schema = jsonSchema({ type: 'object', properties: { city: { type: 'string' }, people: { type: 'integer' } }, required: ['city', 'people'], additionalProperties: false });
  const { object } = await generateObject({ model: relay('chat'), prompt: 'A place.', schema });
  assert.ok(Number.isInteger(object.people));
  const { output } = await generateText({ model: relay('chat'), prompt: 'A place.', output: Output.object({ schema }) });
  assert.equal(typeof output.city, 'string');
});

test('embeds', patience, async () => {
  const { embedding, usage } = await embed({ model: relay.embeddingModel('embed'), value: 'one' });
  assert.ok(embedding.length > 8 && usage.tokens > 0);
  const { embeddings } = await embedMany({ model: relay.embeddingModel('embed'), values: ['one', 'two'] });
  assert.equal(embeddings.length, 2);
});

test('shows images', patience, async () => {
  const { usage } = await generateText({
    model: relay('vision'), maxOutputTokens: 4,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, { type: 'file', mediaType: 'image/png', data: Buffer.from(pixel, 'base64') }] }],
  });
  assert.equal(usage.outputTokens, 4);
});

test('has errors of the provider', patience, async () => {
  const failed = (status, pattern) => (e) => {
    assert.ok(APICallError.isInstance(e), e);
    assert.equal(e.statusCode, status);
    assert.match(e.message, pattern);
    return true;
  };
  await assert.rejects(generateText({ model: relay('nobody'), prompt: 'x' }), failed(404, /nobody/));
  const stranger = createOpenAICompatible({ name: 'relay', baseURL: process.env.OPENAI_BASE_URL, apiKey: 'rk-made-up' });
  await assert.rejects(generateText({ model: stranger('chat'), prompt: 'x' }), failed(401, /key/));
  await assert.rejects(generateText({ model: relay('chat'), prompt: 'word '.repeat(6000) }), failed(400, /maximum context length/));
  const none = createOpenAICompatible({ name: 'relay', baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.RELAY_TEST_EMBED_KEY });
  await assert.rejects(generateText({ model: none('chat'), prompt: 'x' }), failed(403, /chat/));
});

test('tries again where that helps', patience, async () => {
  await generateText({ model: relay('faulty'), prompt: 'x', maxOutputTokens: 2 });
  const impatient = createOpenAICompatible({ name: 'relay', baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY, headers: { prefer: 'wait=0' } });
  await faults('faulty', 'refuse*1');
  const { usage } = await generateText({ model: impatient('faulty'), prompt: 'x', maxOutputTokens: 2 });
  assert.equal(usage.outputTokens, 2);
  await faults('faulty', 'die:3*1');
  const errors = [];
  const cut = streamText({ model: relay('faulty'), prompt: 'x', maxOutputTokens: 20, onError: ({ error }) => errors.push(error) });
  await cut.consumeStream();
  assert.deepEqual(errors, []);
  assert.equal((await cut.usage).outputTokens, 20);
});
