from sluice_transcoder.worker import main

if __name__ == "__main__":
    main()
